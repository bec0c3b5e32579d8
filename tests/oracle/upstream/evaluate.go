package main

import (
	"context"
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

type expressionCase struct {
	Expression string
	Features   []string
	Device     struct {
		Driver                   string
		AllowMultipleAllocations *bool
		Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
		Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
	}
}

type expressionAnswer struct {
	Match        *bool  `json:"match,omitempty"`
	RuntimeError string `json:"runtimeError,omitempty"`
	CompileError string `json:"compileError,omitempty"`
	Cost         uint64 `json:"cost"`
}

func evaluate(line []byte) (any, error) {
	var c expressionCase
	if err := json.Unmarshal(line, &c); err != nil {
		return nil, err
	}
	options := cel.Options{DisableCostEstimation: true}
	compiled := cel.GetCompiler(celFeatures(c.Features)).CompileCELExpression(c.Expression, options)
	if compiled.Error != nil {
		return expressionAnswer{CompileError: compiled.Error.Detail}, nil
	}
	matches, details, err := compiled.DeviceMatches(context.Background(), cel.Device{
		Driver:                   c.Device.Driver,
		AllowMultipleAllocations: c.Device.AllowMultipleAllocations,
		Attributes:               c.Device.Attributes,
		Capacity:                 c.Device.Capacity,
	})
	var cost uint64
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	if err != nil {
		return expressionAnswer{RuntimeError: err.Error(), Cost: cost}, nil
	}
	return expressionAnswer{Match: &matches, Cost: cost}, nil
}
