{{/*
A Job that runs a command of the chart's own image, when something happens to the release.

root: the chart's context; part: its name; command: a list; on: the events; config: the name of a
ConfigMap that is mounted at /etc/carina, or "".

It stays when it fails, with its log. Its ServiceAccount and permissions are hooks as well, so that
nobody has them at other times.
*/}}
{{- define "carina.hook.job" -}}
{{- with .root }}
{{- $name := printf "%s-%s" (include "carina.fullname" .) $.part }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ toYaml .Release.Namespace }}
  annotations:
    helm.sh/hook: {{ $.on }}
    helm.sh/hook-weight: "10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    # Helm 4 prints what the command says; with Helm 3, it is in the log of the Job.
    helm.sh/hook-output-log-policy: hook-failed
    {{- with .Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "carina.labels" . | nindent 4 }}
spec:
  backoffLimit: 0
  activeDeadlineSeconds: 240
  template:
    metadata:
      labels:
        {{- include "carina.labels" . | nindent 8 }}
        app.kubernetes.io/component: hook
    spec:
      restartPolicy: Never
      serviceAccountName: {{ $name }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      nodeSelector:
        {{- toYaml (merge (dict "kubernetes.io/os" "linux") .Values.controller.nodeSelector) | nindent 8 }}
      {{- with .Values.controller.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "carina.unprivileged.pod" . | nindent 8 }}
      containers:
        - name: carina
          image: {{ include "carina.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          command:
            {{- toYaml $.command | nindent 12 }}
          env:
            - {name: PYTHONOPTIMIZE, value: "2"}
          securityContext:
            {{- include "carina.unprivileged.container" . | nindent 12 }}
          resources:
            requests:
              cpu: 10m
              memory: 64Mi
          {{- with $.config }}
          volumeMounts:
            - {name: config, mountPath: /etc/carina, readOnly: true}
          {{- end }}
      {{- with $.config }}
      volumes:
        - name: config
          configMap: {name: {{ . }}}
      {{- end }}
{{- end }}
{{- end }}

{{/*
The ServiceAccount of such a Job, and what it may do in the cluster and in its own namespace.

root, part, on: as above; rules, ownRules: lists of rules.
*/}}
{{- define "carina.hook.permissions" -}}
{{- with .root }}
{{- $name := printf "%s-%s" (include "carina.fullname" .) $.part }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ toYaml .Release.Namespace }}
  annotations:
    {{- include "carina.hook.object" $ | nindent 4 }}
  labels:
    {{- include "carina.labels" . | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  annotations:
    {{- include "carina.hook.object" $ | nindent 4 }}
  labels:
    {{- include "carina.labels" . | nindent 4 }}
rules:
  {{- toYaml $.rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  annotations:
    {{- include "carina.hook.object" $ | nindent 4 }}
  labels:
    {{- include "carina.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ toYaml .Release.Namespace }}
{{- with $.ownRules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ toYaml $.root.Release.Namespace }}
  annotations:
    {{- include "carina.hook.object" $ | nindent 4 }}
  labels:
    {{- include "carina.labels" $.root | nindent 4 }}
rules:
  {{- toYaml . | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ toYaml $.root.Release.Namespace }}
  annotations:
    {{- include "carina.hook.object" $ | nindent 4 }}
  labels:
    {{- include "carina.labels" $.root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ toYaml $.root.Release.Namespace }}
{{- end }}
{{- end }}
{{- end }}

{{- define "carina.hook.object" -}}
helm.sh/hook: {{ .on }}
helm.sh/hook-weight: "0"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
