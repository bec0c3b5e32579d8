package main

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// A line either adds objects to the cluster, or asks for pods.
type benchCommand struct {
	Add *benchObjects
	Ask *benchPods
}

type benchObjects struct {
	allocationCase
	Nodes []*v1.Node
}

type addAnswer struct {
	// The thread's CPU time to decode the line, in nanoseconds.
	Decode int64 `json:"decode"`
}

// Pods whose claims are allocated one pod after the other, each on a single node.
type benchPods struct {
	Pods [][]*resourceapi.ResourceClaim
	// The number of suitable nodes after which no other node is tried; 0 for all nodes.
	Enough int
	// Whether a pod's devices are in use for the pods after it. All are free again afterwards.
	Give bool
	// After this time no other node is tried.
	TimeoutMs int64
}

type askAnswer struct {
	// One for each pod that was tried before the time was over.
	Pods []podAnswer `json:"pods"`
}

type podAnswer struct {
	// The thread's CPU time for this pod, in nanoseconds.
	Took int64 `json:"took"`
	// The number of suitable nodes among the nodes tried.
	Suitable int `json:"suitable"`
	Tried    int `json:"tried"`
}

// The cluster that the lines have described.
type bench struct {
	objects   benchObjects
	allocated structured.AllocatedState
	cache     *cel.Cache
}

func newBench() *bench {
	// So that the CPU time of the thread is that of this goroutine. The garbage collector has others.
	runtime.LockOSThread()
	// The stable implementation tries pools in no particular order.
	structured.EnableAllocators("incubating", "experimental")
	return &bench{allocated: state(&allocationCase{})}
}

func (b *bench) answer(line []byte) (any, error) {
	begun := cpuTime()
	var command benchCommand
	if err := json.Unmarshal(line, &command); err != nil {
		return nil, err
	}
	switch {
	case command.Add != nil:
		answer := addAnswer{Decode: cpuTime() - begun}
		b.add(command.Add)
		return answer, nil
	case command.Ask != nil:
		return b.ask(command.Ask)
	}
	return nil, errors.New("neither add nor ask")
}

func (b *bench) add(more *benchObjects) {
	if len(more.Features) > 0 {
		b.objects.Features = more.Features
		b.cache = cel.NewCache(100, celFeatures(more.Features))
	}
	b.objects.Nodes = append(b.objects.Nodes, more.Nodes...)
	b.objects.Classes = append(b.objects.Classes, more.Classes...)
	b.objects.Slices = append(b.objects.Slices, more.Slices...)
	added := state(&more.allocationCase)
	b.allocated.AllocatedDevices = b.allocated.AllocatedDevices.Union(added.AllocatedDevices)
	b.allocated.AllocatedSharedDeviceIDs = b.allocated.AllocatedSharedDeviceIDs.Union(added.AllocatedSharedDeviceIDs)
	for _, d := range more.ConsumedCapacity {
		b.allocated.AggregatedCapacity.Insert(consumed(d))
	}
}

func (b *bench) ask(pods *benchPods) (*askAnswer, error) {
	ctx := context.Background()
	if pods.TimeoutMs > 0 {
		bounded, cancel := context.WithTimeout(ctx, time.Duration(pods.TimeoutMs)*time.Millisecond)
		defer cancel()
		ctx = bounded
	}
	answers := []podAnswer{}
	for _, claims := range pods.Pods {
		if ctx.Err() != nil {
			break
		}
		begun := cpuTime()
		answer, results, err := b.place(ctx, claims, pods.Enough)
		if err != nil {
			return nil, err
		}
		answer.Took = cpuTime() - begun
		answers = append(answers, answer)
		if pods.Give {
			use(b.allocated, results)
			defer free(b.allocated, results)
		}
	}
	return &askAnswer{answers}, nil
}

// Tries one node after the other. The results are those on the first suitable node.
func (b *bench) place(ctx context.Context, claims []*resourceapi.ResourceClaim, enough int) (podAnswer, []resourceapi.AllocationResult, error) {
	var answer podAnswer
	var first []resourceapi.AllocationResult
	allocator, err := structured.NewAllocator(ctx, features(b.objects.Features), b.allocated, b.objects.Classes, b.objects.Slices, b.cache)
	if err != nil {
		return answer, nil, err
	}
	for _, node := range b.objects.Nodes {
		results, err := allocator.Allocate(ctx, node, claims)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return answer, nil, err
		}
		answer.Tried++
		if len(results) == 0 {
			continue
		}
		if answer.Suitable == 0 {
			first = results
		}
		answer.Suitable++
		if answer.Suitable == enough {
			break
		}
	}
	return answer, first, nil
}

func use(allocated structured.AllocatedState, results []resourceapi.AllocationResult) {
	for _, d := range devicesOf(results) {
		id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
		if d.ShareID == nil {
			allocated.AllocatedDevices.Insert(id)
			continue
		}
		allocated.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, d.ShareID))
		allocated.AggregatedCapacity.Insert(consumed(d))
	}
}

func free(allocated structured.AllocatedState, results []resourceapi.AllocationResult) {
	for _, d := range devicesOf(results) {
		id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
		if d.ShareID == nil {
			allocated.AllocatedDevices.Delete(id)
			continue
		}
		allocated.AllocatedSharedDeviceIDs.Delete(structured.MakeSharedDeviceID(id, d.ShareID))
		allocated.AggregatedCapacity.Remove(consumed(d))
	}
}

func devicesOf(results []resourceapi.AllocationResult) []device {
	var devices []device
	for _, result := range results {
		for _, d := range result.Devices.Results {
			devices = append(devices, device{d.Driver, d.Pool, d.Device, d.ShareID, d.ConsumedCapacity})
		}
	}
	return devices
}

func consumed(d device) structured.DeviceConsumedCapacity {
	id := structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
	return structured.NewDeviceConsumedCapacity(id, d.ConsumedCapacity)
}

// On idle cores, this is the time that passes.
func cpuTime() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}
