{{/* Those of the plugin's pools that carina-sharing runs on, as JSON. */}}
{{- define "carina.sharing.pools" -}}
{{- $enabled := .Values.sharing.enabled }}
{{- $pools := list }}
{{- range include "carina.kubelet-plugin.pools" . | fromJsonArray }}
{{- $kinds := .settings.device_kinds | default list }}
{{- if kindIs "string" $kinds }}
{{- $kinds = splitList "," (nospace $kinds) }}
{{- end }}
{{- range .settings.device_kinds_by_gpu }}
{{- $kinds = concat $kinds .kinds }}
{{- end }}
{{- if or (eq (toString $enabled) "true") (and (eq (toString $enabled) "auto") (has "share" $kinds)) }}
{{- $pools = append $pools . }}
{{- end }}
{{- end }}
{{- toJson $pools }}
{{- end }}
