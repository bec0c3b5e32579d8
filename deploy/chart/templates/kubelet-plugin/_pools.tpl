{{/*
The nodes of one DaemonSet each, as JSON: a list of maps with name, suffix of the DaemonSet's name,
nodeSelector, settings of the plugin, and the labels that its nodes are without.

An entry's nodes are those with its label and with none of an earlier entry's; all others are the
default's. So every node has exactly one plugin.
*/}}
{{- define "carina.kubelet-plugin.pools" -}}
{{- $values := .Values.kubeletPlugin }}
{{- $without := list }}
{{- $pools := list }}
{{- range $values.nodeSettings }}
{{- $settings := mergeOverwrite (deepCopy $values.settings) (default dict .settings) }}
{{- $pools = append $pools (dict "name" .name "suffix" (printf "-%s" .name) "nodeSelector" .nodeSelector "settings" $settings "without" $without) }}
{{- $without = append $without .nodeSelector }}
{{- end }}
{{- $default := dict "name" "default" "suffix" "" "nodeSelector" dict "settings" $values.settings "without" $without }}
{{- prepend $pools $default | toJson }}
{{- end }}
