// Writes the files of this folder with the kubelet's own code, one for each case of claims.json:
//
//	cd simulation/kubernetes/modules/kubernetes-1.37
//	go run ../../../../tests/unit/kubelet_plugin/data/kubelet_record/main.go
//
// The module sets the release, and so the folder. For 1.34 and 1.35, which have no module there, a
// temporary one requires k8s.io/kubernetes at that release and has the same `replace` lines with its
// versions (go run -mod=mod). Fields that a release does not know are left out.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
)

// release gives the version of k8s.io/kubernetes in this program.
func release() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range info.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return module.Version, nil
			}
		}
	}
	return "", errors.New("built without k8s.io/kubernetes")
}

func write(folder, name string, claims state.ClaimInfoStateList) error {
	checkpoint, err := state.NewCheckpoint(claims)
	if err != nil {
		return err
	}
	checkpointer, err := state.NewCheckpointer(folder, name)
	if err != nil {
		return err
	}
	return checkpointer.Store(checkpoint)
}

func run() error {
	_, source, _, _ := runtime.Caller(0)
	here := filepath.Dir(source)
	version, err := release()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(here, "claims.json"))
	if err != nil {
		return err
	}
	var cases map[string]state.ClaimInfoStateList
	if err := json.Unmarshal(content, &cases); err != nil {
		return fmt.Errorf("claims.json: %w", err)
	}
	for name, claims := range cases {
		if err := write(filepath.Join(here, version), name, claims); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
