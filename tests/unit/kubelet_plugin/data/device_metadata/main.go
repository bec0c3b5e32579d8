// Writes the files of this folder with upstream's own code, one for each case of cases.json, and the
// paths at which containers look for them:
//
//	cd simulation/kubernetes/modules/kubernetes-1.37
//	go run ../../../../tests/unit/kubelet_plugin/data/device_metadata/main.go
//
// The stream is composed as `metadataWriter` of k8s.io/dynamic-resource-allocation/kubeletplugin does it,
// which other packages cannot call.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/api/metadata/install"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
)

const driver = "gpu.carina.dev"

type device struct {
	Pool       string                                                     `json:"pool"`
	Name       string                                                     `json:"name"`
	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
}

type metadataCase struct {
	Claim struct {
		Namespace string    `json:"namespace"`
		Name      string    `json:"name"`
		UID       types.UID `json:"uid"`
	} `json:"claim"`
	PodClaimName *string  `json:"podClaimName"`
	Generation   int64    `json:"generation"`
	Request      string   `json:"request"`
	Devices      []device `json:"devices"`
}

func (c metadataCase) object() *metadata.DeviceMetadata {
	request := metadata.DeviceMetadataRequest{Name: c.Request}
	for _, d := range c.Devices {
		request.Devices = append(request.Devices, metadata.Device{
			Driver: driver, Pool: d.Pool, Name: d.Name, Attributes: d.Attributes,
		})
	}
	return &metadata.DeviceMetadata{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Claim.Name, Namespace: c.Claim.Namespace, UID: c.Claim.UID, Generation: c.Generation,
		},
		PodClaimName: c.PodClaimName,
		Requests:     []metadata.DeviceMetadataRequest{request},
	}
}

func (c metadataCase) path() string {
	request, _, _ := strings.Cut(c.Request, "/")
	if c.PodClaimName != nil {
		return metadata.ResourceClaimTemplateFilePath(driver, *c.PodClaimName, request)
	}
	return metadata.ResourceClaimFilePath(driver, c.Claim.Name, request)
}

func stream(object *metadata.DeviceMetadata) ([]byte, error) {
	codecs := serializer.NewCodecFactory(install.NewScheme())
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", runtime.ContentTypeJSON)
	}
	var all bytes.Buffer
	for _, version := range []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion} {
		data, err := runtime.Encode(codecs.EncoderForVersion(info.PrettySerializer, version), object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", version, err)
		}
		all.Write(data)
		all.WriteByte('\n')
	}
	return all.Bytes(), nil
}

func run() error {
	_, source, _, _ := goruntime.Caller(0)
	here := filepath.Dir(source)
	content, err := os.ReadFile(filepath.Join(here, "cases.json"))
	if err != nil {
		return err
	}
	var cases map[string]metadataCase
	if err := json.Unmarshal(content, &cases); err != nil {
		return fmt.Errorf("cases.json: %w", err)
	}
	paths := map[string]string{}
	for name, c := range cases {
		data, err := stream(c.object())
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(here, name+".stream"), data, 0o644); err != nil {
			return err
		}
		paths[name] = c.path()
	}
	rendered, err := json.MarshalIndent(paths, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(here, "paths.json"), append(rendered, '\n'), 0o644)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
