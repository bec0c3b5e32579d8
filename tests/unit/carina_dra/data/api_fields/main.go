// Lists every field of the objects of resource.k8s.io/v1 by its path in JSON, for the tests of
// carina_dra.resource: fields.json has its type in JSON, type_names.json the name of its type in Go,
// where it has one. `go run .` in this folder writes both.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// addNames finds the named types: structs, and strings with a fixed set of values.
func addNames(found map[string]string, path string, t reflect.Type) {
	_, isRoot := roots[t]
	_, isLeaf := leaves[t]
	if t.Name() != "" && t.PkgPath() != "" && !isLeaf {
		found[path] = t.Name()
	}
	if isLeaf || (isRoot && path != "") {
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		addNames(found, path, t.Elem())
	case reflect.Slice:
		addNames(found, path+"[]", t.Elem())
	case reflect.Map:
		addNames(found, path+"{}", t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Type == reflect.TypeFor[metav1.TypeMeta]():
			case name == "": // its fields are those of the object it is in, whose name stays
				inner := map[string]string{}
				addNames(inner, path, field.Type)
				delete(inner, path)
				maps.Copy(found, inner)
			default:
				addNames(found, strings.TrimPrefix(path+"."+name, "."), field.Type)
			}
		}
	}
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

func write(name string, content any) error {
	encoded, err := json.MarshalIndent(content, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(encoded, '\n'), 0o644)
}

func main() {
	fields, names := map[string]map[string]string{}, map[string]map[string]string{}
	for t, name := range roots {
		fields[name], names[name] = map[string]string{}, map[string]string{}
		add(fields[name], "", t)
		addNames(names[name], "", t)
	}
	if err := errors.Join(write("fields.json", fields), write("type_names.json", names)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
