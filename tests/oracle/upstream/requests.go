package main

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// podRequests answers with what the containers of a pod and the pod itself request, in whole units
// (thousandths of a CPU), as kube-scheduler counts it on the node.
func podRequests(line []byte) (any, error) {
	var pod v1.Pod
	if err := json.Unmarshal(line, &pod); err != nil {
		return nil, err
	}
	amounts := map[v1.ResourceName]int64{}
	options := resource.PodResourcesOptions{UseStatusResources: true}
	for name, quantity := range resource.PodRequests(&pod, options) {
		if name == v1.ResourceCPU {
			amounts[name] = quantity.MilliValue()
		} else {
			amounts[name] = quantity.Value()
		}
	}
	return amounts, nil
}
