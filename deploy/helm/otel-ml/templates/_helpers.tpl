{{- define "otel-ml.name" -}}
{{ printf "%s-%s" .root.Release.Name .part | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "otel-ml.selector" -}}
app.kubernetes.io/name: otel-ml
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "otel-ml.labels" -}}
{{ include "otel-ml.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "otel-ml.secret" -}}
{{ .Values.existingSecret | default (printf "%s-token" .Release.Name) }}
{{- end }}

{{- define "otel-ml.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "otel-ml.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Environment of a Collector: the token, and with TLS the certificates of secure.yaml. */}}
{{- define "otel-ml.collectorEnvironment" -}}
- name: OTEL_ML_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "otel-ml.secret" . }}, key: token}}
{{- if .Values.tls.existingSecret }}
- {name: OTEL_ML_TLS_CERTIFICATE, value: /etc/otel-ml-tls/tls.crt}
- {name: OTEL_ML_TLS_KEY, value: /etc/otel-ml-tls/tls.key}
- {name: OTEL_ML_TLS_CA, value: /etc/otel-ml-tls/ca.crt}
{{- end }}
{{- end }}

{{- define "otel-ml.collectorHealth" -}}
startupProbe:
  httpGet: {path: /, port: health}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /, port: health}
  periodSeconds: 5
{{- end }}
