// Lists for test_resource_fields.py every field of the objects of resource.k8s.io/v1, by its path in
// JSON, with its type there: `go run .` in this folder writes fields.json anew.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// roots are listed each by itself, and named where they are used.
var roots = map[reflect.Type]string{
	reflect.TypeFor[resourcev1.DeviceClass]():           "DeviceClass",
	reflect.TypeFor[resourcev1.DeviceTaintRule]():       "DeviceTaintRule",
	reflect.TypeFor[resourcev1.ResourceClaim]():         "ResourceClaim",
	reflect.TypeFor[resourcev1.ResourceClaimTemplate](): "ResourceClaimTemplate",
	reflect.TypeFor[resourcev1.ResourceSlice]():         "ResourceSlice",
	reflect.TypeFor[corev1.NodeSelector]():              "NodeSelector",
	reflect.TypeFor[metav1.Condition]():                 "Condition",
	reflect.TypeFor[metav1.ObjectMeta]():                "ObjectMeta",
}

// leaves have a JSON form of their own.
var leaves = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[runtime.RawExtension](): "object",
	reflect.TypeFor[metav1.FieldsV1]():      "object",
}

func add(found map[string]string, path string, t reflect.Type) {
	if name, ok := roots[t]; ok && path != "" {
		found[path] = name
		return
	}
	if name, ok := leaves[t]; ok {
		found[path] = name
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		add(found, path, t.Elem())
	case reflect.Slice:
		add(found, path+"[]", t.Elem())
	case reflect.Map:
		add(found, path+"{}", t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Type == reflect.TypeFor[metav1.TypeMeta]():
			case name == "": // its fields are those of the object it is in
				add(found, path, field.Type)
			default:
				add(found, strings.TrimPrefix(path+"."+name, "."), field.Type)
			}
		}
	case reflect.String:
		found[path] = "string"
	case reflect.Int32, reflect.Int64:
		found[path] = "integer"
	case reflect.Bool:
		found[path] = "boolean"
	default:
		panic(fmt.Sprintf("%s is a %s", path, t))
	}
}

func main() {
	all := map[string]map[string]string{}
	for t, name := range roots {
		all[name] = map[string]string{}
		add(all[name], "", t)
	}
	content, err := json.MarshalIndent(all, "", " ")
	if err == nil {
		err = os.WriteFile("fields.json", append(content, '\n'), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
