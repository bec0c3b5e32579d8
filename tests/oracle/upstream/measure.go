package main

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type benchCase struct {
	allocationCase
	Nodes []*v1.Node
	// How often the sweep over all nodes is repeated.
	Rounds int
}

// All in nanoseconds.
type benchAnswer struct {
	NewAllocator int64 `json:"newAllocator"`
	AllocateP50  int64 `json:"allocateP50"`
	AllocateP99  int64 `json:"allocateP99"`
	// Allocate for every node once: the best of all rounds.
	Sweep int64 `json:"sweep"`
	// On how many nodes there were devices.
	Satisfiable int `json:"satisfiable"`
}

func measure(line []byte) (any, error) {
	var c benchCase
	if err := json.Unmarshal(line, &c); err != nil {
		return nil, err
	}
	ctx := context.Background()
	cache := cel.NewCache(100, celFeatures(c.Features))
	allocated := state(&c.allocationCase)
	var answer benchAnswer
	var each []int64
	for range max(c.Rounds, 1) {
		begun := time.Now()
		allocator, err := structured.NewAllocator(ctx, features(c.Features), allocated, c.Classes, c.Slices, cache)
		if err != nil {
			return nil, err
		}
		answer.NewAllocator = time.Since(begun).Nanoseconds()
		answer.Satisfiable = 0
		sweep := time.Now()
		for _, node := range c.Nodes {
			begun := time.Now()
			results, err := allocator.Allocate(ctx, node, c.Claims)
			if err != nil {
				return nil, err
			}
			each = append(each, time.Since(begun).Nanoseconds())
			if len(results) > 0 {
				answer.Satisfiable++
			}
		}
		took := time.Since(sweep).Nanoseconds()
		if answer.Sweep == 0 || took < answer.Sweep {
			answer.Sweep = took
		}
	}
	slices.Sort(each)
	answer.AllocateP50 = each[len(each)/2]
	answer.AllocateP99 = each[len(each)*99/100]
	return answer, nil
}
