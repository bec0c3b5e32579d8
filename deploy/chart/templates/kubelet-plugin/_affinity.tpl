{{/*
The affinity of one DaemonSet: that of the values, on the nodes that nodeSelection selects, and on none
with a label in "without". The terms of a nodeSelector are alternatives, so each gets all requirements.

root: the chart's context; without: a list of maps with one label each.
*/}}
{{- define "carina.kubelet-plugin.affinity" -}}
{{- $affinity := deepCopy .root.Values.kubeletPlugin.affinity }}
{{- $node := get $affinity "nodeAffinity" | default dict }}
{{- $required := get $node "requiredDuringSchedulingIgnoredDuringExecution" | default dict }}
{{- $given := get $required "nodeSelectorTerms" | default list }}
{{- $excluded := list }}
{{- range .without }}
{{- range $label, $value := . }}
{{- $excluded = append $excluded (dict "key" $label "operator" "NotIn" "values" (list $value)) }}
{{- end }}
{{- end }}
{{- $selected := list }}
{{- if eq .root.Values.kubeletPlugin.nodeSelection "nfd" }}
{{- range list "feature.node.kubernetes.io/pci-10de.present" "feature.node.kubernetes.io/pci-0302_10de.present" "feature.node.kubernetes.io/pci-0300_10de.present" "nvidia.com/gpu.present" }}
{{- $selected = append $selected (list (dict "key" . "operator" "In" "values" (list "true"))) }}
{{- end }}
{{- $selected = append $selected (list (dict "key" "feature.node.kubernetes.io/cpu-model.vendor_id" "operator" "In" "values" (list "NVIDIA"))) }}
{{- end }}
{{- if or $excluded $selected }}
{{- $terms := list }}
{{- range $term := default (list dict) $given }}
{{- range $labels := default (list list) $selected }}
{{- $expressions := concat (get $term "matchExpressions" | default list) $labels $excluded }}
{{- $terms = append $terms (merge (dict "matchExpressions" $expressions) $term) }}
{{- end }}
{{- end }}
{{- $_ := set $affinity "nodeAffinity" (merge (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms)) (omit $node "requiredDuringSchedulingIgnoredDuringExecution")) }}
{{- end }}
{{- with $affinity }}
{{- toYaml . }}
{{- end }}
{{- end }}
