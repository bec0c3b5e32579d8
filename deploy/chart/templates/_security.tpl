{{/* The security contexts of pods that need nothing of their node: Pod Security calls them restricted. */}}

{{- define "carina.unprivileged.pod" -}}
runAsNonRoot: true
{{- if not (include "carina.onOpenShift" .) }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "carina.unprivileged.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
