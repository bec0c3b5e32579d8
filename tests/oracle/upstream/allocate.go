package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type device struct {
	Driver, Pool, Device string
	ShareID              *types.UID
	ConsumedCapacity     map[resourceapi.QualifiedName]resource.Quantity
}

type allocationCase struct {
	Features               []string
	Node                   *v1.Node
	Classes                classes
	Slices                 []*resourceapi.ResourceSlice
	Claims                 []*resourceapi.ResourceClaim
	AllocatedDevices       []device
	AllocatedSharedDevices []device
	ConsumedCapacity       []device
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("device class %q not found", name)
}

// The names of the gates are those of the vectors.
func features(gates []string) structured.Features {
	on := sets.New[string]()
	for _, gate := range gates {
		on.Insert(strings.Split(gate, "+")...)
	}
	return structured.Features{
		AdminAccess:             on.Has("DRAAdminAccess"),
		CompatibilityGroups:     on.Has("DRADeviceCompatibilityGroups"),
		ConsumableCapacity:      on.Has("DRAConsumableCapacity"),
		DerivedAttributes:       on.Has("DRADerivedAttributes"),
		DeviceBindingAndStatus:  on.Has("DRADeviceBindingConditions"),
		DeviceTaints:            on.Has("DRADeviceTaints"),
		FractionalCapacityRange: on.Has("DRAFractionalCapacityRange"),
		ListTypeAttributes:      on.Has("DRAListTypeAttributes"),
		OptionalNodeOperations:  on.Has("DRAOptionalNodeOperations"),
		PartitionableDevices:    on.Has("DRAPartitionableDevices"),
		PrioritizedList:         on.Has("DRAPrioritizedList"),
	}
}

func celFeatures(gates []string) cel.Features {
	of := features(gates)
	return cel.Features{
		EnableConsumableCapacity: of.ConsumableCapacity,
		EnableListTypeAttributes: of.ListTypeAttributes,
	}
}

var caches = map[cel.Features]*cel.Cache{}

// The expressions compiled so far. Cases share few expressions, and compiling one takes longer than
// the search.
func compiled(features cel.Features) *cel.Cache {
	if caches[features] == nil {
		caches[features] = cel.NewCache(1000, features)
	}
	return caches[features]
}

func state(c *allocationCase) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, d := range c.AllocatedDevices {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(d.Driver, d.Pool, d.Device))
	}
	for _, d := range c.AllocatedSharedDevices {
		id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, d.ShareID))
	}
	for _, d := range c.ConsumedCapacity {
		id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, d.ConsumedCapacity))
	}
	return state
}

type allocationAnswer struct {
	Allocations   []resourceapi.AllocationResult `json:"allocations,omitempty"`
	Unsatisfiable bool                           `json:"unsatisfiable,omitempty"`
	Error         string                         `json:"error,omitempty"`
	NodeLocal     *bool                          `json:"nodeLocal,omitempty"`
	SearchSteps   int64                          `json:"searchSteps"`
}

func allocate(line []byte) (any, error) {
	var c allocationCase
	if err := json.Unmarshal(line, &c); err != nil {
		return nil, err
	}
	ctx := context.Background()
	// The stable implementation tries pools in no particular order.
	structured.EnableAllocators("incubating", "experimental")
	allocator, err := structured.NewAllocator(ctx, features(c.Features), state(&c), c.Classes, c.Slices, compiled(celFeatures(c.Features)))
	if err != nil {
		return nil, err
	}
	results, err := allocator.Allocate(ctx, c.Node, c.Claims)
	answer := allocationAnswer{Allocations: results, SearchSteps: steps(allocator)}
	switch {
	case err != nil:
		nodeLocal := errors.Is(err, structured.ErrFailedAllocationOnNode)
		answer = allocationAnswer{Error: err.Error(), NodeLocal: &nodeLocal}
	case len(results) == 0:
		answer.Unsatisfiable = true
	}
	return answer, nil
}

// The type of the statistics is internal to upstream.
func steps(allocator structured.Allocator) int64 {
	stats := reflect.ValueOf(allocator).MethodByName("GetStats")
	if !stats.IsValid() {
		return 0
	}
	return stats.Call(nil)[0].FieldByName("NumAllocateOneInvocations").Int()
}
