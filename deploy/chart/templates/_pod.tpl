{{/* Probe of one path: of (list . path). On the host's network kubelet asks loopback, else
the pod's address: over HTTPS, or without the webhook over HTTP. */}}
{{- define "gpu-extender.probe" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 -}}
{{- if not $root.Values.scheduler.enabled -}}
httpGet:
  host: {{ include "gpu-extender.host" $root | quote }}
  port: {{ include "gpu-extender.port" $root }}
  path: {{ $path }}
{{- else -}}
httpGet:
  scheme: {{ $root.Values.webhook.enabled | ternary "HTTPS" "HTTP" }}
  port: {{ int $root.Values.webhook.port }}
  path: {{ $path }}
{{- end }}
timeoutSeconds: 2
{{- end -}}

{{- define "gpu-extender.volumeMounts" -}}
- {name: config, mountPath: /etc/gpu-extender/config, readOnly: true}
{{- if .Values.rules }}
- {name: rules, mountPath: /etc/gpu-extender/rules, readOnly: true}
{{- end }}
{{- if and .Values.webhook.enabled (not .Values.webhook.selfSigned.enabled) }}
- {name: certificate, mountPath: /etc/gpu-extender/certificate, readOnly: true}
{{- end }}
{{- if .Values.scheduler.enabled }}
- {name: scheduler-config, mountPath: /etc/kube-scheduler, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "gpu-extender.volumes" -}}
- name: config
  configMap: {name: {{ include "gpu-extender.configName" . }}}
{{- if .Values.rules }}
- name: rules
  configMap: {name: {{ include "gpu-extender.fullname" . }}-rules}
{{- end }}
{{- if and .Values.webhook.enabled (not .Values.webhook.selfSigned.enabled) }}
- name: certificate
  secret: {secretName: {{ include "gpu-extender.certificateSecret" . }}, defaultMode: 0440}
{{- end }}
{{- if .Values.scheduler.enabled }}
- name: scheduler-config
  configMap: {name: {{ include "gpu-extender.schedulerConfigName" . }}}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end -}}

{{/* The container of gpu-extender without probes. */}}
{{- define "gpu-extender.container" -}}
name: gpu-extender
image: {{ include "gpu-extender.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [gpu-extender]
args:
  - serve
  - --config=/etc/gpu-extender/config/config.yaml
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if .Values.webhook.enabled }}
ports:
  - {name: webhook, containerPort: {{ int .Values.webhook.port }}}
{{- end }}
volumeMounts:
  {{- include "gpu-extender.volumeMounts" . | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
{{- end -}}

{{- define "gpu-extender.probes" -}}
# It has read the cluster before anybody asks it.
startupProbe:
  {{- include "gpu-extender.probe" (list . "/readyz/extender") | nindent 2 }}
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  {{- include "gpu-extender.probe" (list . "/readyz") | nindent 2 }}
  periodSeconds: 5
livenessProbe:
  {{- include "gpu-extender.probe" (list . "/healthz") | nindent 2 }}
  periodSeconds: 10
{{- end -}}

{{/* By these a pod goes where nodeSelector sends it. */}}
{{- define "gpu-extender.tolerations" -}}
{{- if .Values.tolerations -}}
{{- toYaml .Values.tolerations -}}
{{- else if not .Values.scheduler.enabled -}}
- {key: node-role.kubernetes.io/control-plane, operator: Exists}
- {key: node-role.kubernetes.io/etcd, operator: Exists}
- {key: CriticalAddonsOnly, operator: Exists}
{{- end -}}
{{- end -}}

{{/* Of the pod: what both modes share. */}}
{{- define "gpu-extender.podSpec" -}}
serviceAccountName: {{ include "gpu-extender.serviceAccountName" . }}
# Never by ourselves.
schedulerName: default-scheduler
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ int .Values.terminationGracePeriodSeconds }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with include "gpu-extender.imagePullSecrets" . }}
{{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  {{- include "gpu-extender.volumes" . | nindent 2 }}
{{- end -}}
