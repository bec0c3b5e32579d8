{{/* The names, labels and images of the chart's objects. */}}

{{- define "carina.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "carina.fullname" -}}
{{- $name := include "carina.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels of every object. */}}
{{- define "carina.labels" -}}
app.kubernetes.io/name: {{ include "carina.name" . | toYaml }}
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The annotations of every object, as the lines after its name. */}}
{{- define "carina.annotations" -}}
{{- with .Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- define "carina.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "carina.kubelet-plugin.serviceAccount" -}}
{{- default (printf "%s-kubelet-plugin" (include "carina.fullname" .)) .Values.kubeletPlugin.serviceAccount.name }}
{{- end }}

{{- define "carina.sharing.serviceAccount" -}}
{{- default (printf "%s-sharing" (include "carina.fullname" .)) .Values.sharing.serviceAccount.name }}
{{- end }}

{{- define "carina.controller.serviceAccount" -}}
{{- default (printf "%s-controller" (include "carina.fullname" .)) .Values.controller.serviceAccount.name }}
{{- end }}

{{/* The Lease of the controller. `carina uninstall` relies on it that its Deployment has the same name. */}}
{{- define "carina.controller.lease" -}}
{{- printf "%s-controller" (include "carina.fullname" .) }}
{{- end }}

{{/* "true" on OpenShift, whose SecurityContextConstraints choose the users of pods. */}}
{{- define "carina.onOpenShift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end }}
{{- end }}
