{{- define "gpu-extender.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of most objects: 40 characters leave room for a suffix. */}}
{{- define "gpu-extender.fullname" -}}
{{- $name := include "gpu-extender.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpu-extender.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gpu-extender.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "gpu-extender.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "gpu-extender.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of our pods; `kubectl gpu` finds them by `app`. */}}
{{- define "gpu-extender.podLabels" -}}
app: {{ include "gpu-extender.name" . | quote }}
app.kubernetes.io/component: service
{{ include "gpu-extender.labels" . }}
{{- with .Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What Service, budget, spread and workload select by: not the pod of `helm test`. */}}
{{- define "gpu-extender.podSelector" -}}
app.kubernetes.io/component: service
{{ include "gpu-extender.selectorLabels" . }}
{{- end -}}

{{- define "gpu-extender.metadata" -}}
name: {{ include "gpu-extender.fullname" . }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "gpu-extender.labels" . | nindent 2 }}
{{- end -}}

{{- define "gpu-extender.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gpu-extender.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "gpu-extender.subjects" -}}
- kind: ServiceAccount
  name: {{ include "gpu-extender.serviceAccountName" . }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{/* Reference of an image: of (dict "image" values "tag" default "global" global). */}}
{{- define "gpu-extender.imageReference" -}}
{{- $registry := .global.imageRegistry | default .image.registry -}}
{{- $name := .image.repository -}}
{{- if $registry -}}{{- $name = printf "%s/%s" $registry $name -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .tag) -}}
{{- end -}}
{{- end -}}

{{- define "gpu-extender.image" -}}
{{- include "gpu-extender.imageReference" (dict "image" .Values.image "tag" .Chart.AppVersion "global" .Values.global) -}}
{{- end -}}

{{/* The cluster's minor such as 1.36, of "36+" as well. */}}
{{- define "gpu-extender.minor" -}}
{{- $version := .Capabilities.KubeVersion -}}
{{- printf "%s.%s" (regexReplaceAll "[^0-9]" $version.Major "") (regexReplaceAll "[^0-9]" $version.Minor "") -}}
{{- end -}}

{{/* Tag of kube-scheduler by the cluster's minor, empty for one that is not tested. */}}
{{- define "gpu-extender.schedulerTag" -}}
{{- $tags := .Files.Get "files/kube-scheduler-images.yaml" | fromYaml -}}
{{- .Values.scheduler.image.tag | default (get $tags (include "gpu-extender.minor" .)) -}}
{{- end -}}

{{- define "gpu-extender.schedulerImage" -}}
{{- $tag := include "gpu-extender.schedulerTag" . -}}
{{- include "gpu-extender.imageReference" (dict "image" .Values.scheduler.image "tag" $tag "global" .Values.global) -}}
{{- end -}}

{{- define "gpu-extender.imagePullSecrets" -}}
{{- with concat (.Values.imagePullSecrets | default list) (.Values.global.imagePullSecrets | default list) | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Name of the Lease by which one kube-scheduler of ours leads. */}}
{{- define "gpu-extender.schedulerLease" -}}
{{ include "gpu-extender.fullname" . }}-scheduler
{{- end -}}

{{/* Name of the Secret with the webhook's certificate: cert-manager's own has another one
than ours, since it stays when the other source is chosen, and Helm owns ours. */}}
{{- define "gpu-extender.certificateSecret" -}}
{{- $suffix := ternary "tls" "certificate" .Values.certManager.enabled -}}
{{- .Values.webhook.existingSecret | default (printf "%s-%s" (include "gpu-extender.fullname" .) $suffix) -}}
{{- end -}}

{{- define "gpu-extender.serviceHost" -}}
{{ include "gpu-extender.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "gpu-extender.deadlineMilliseconds" -}}
{{- $timeout := int .Values.webhook.timeoutSeconds -}}
{{- ternary 900 (mul 1000 (sub $timeout 1)) (eq $timeout 1) -}}
{{- end -}}

{{- define "gpu-extender.skippedNamespaces" -}}
{{- append (.Values.webhook.skippedNamespaces | default list) .Release.Namespace | uniq | toJson -}}
{{- end -}}

{{/* The scheduler that GPU pods are sent to, empty where they keep theirs. */}}
{{- define "gpu-extender.sendsTo" -}}
{{- if .Values.scheduler.enabled -}}
{{- .Values.scheduler.name -}}
{{- else -}}
{{- dig "injection" "schedulerName" "" .Values.config | default "" -}}
{{- end -}}
{{- end -}}

{{/* What the chart itself writes into the configuration file. */}}
{{- define "gpu-extender.ownConfig" -}}
{{- $values := .Values -}}
cluster:
  source: kubernetes
election:
  leaseName: {{ include "gpu-extender.fullname" . }}
injection:
  failurePolicy: {{ $values.webhook.failurePolicy }}
  skippedNamespaces: {{ include "gpu-extender.skippedNamespaces" . }}
  {{- if $values.rules }}
  rulesFile: /etc/gpu-extender/rules/rules.yaml
  {{- end }}
  {{- if $values.scheduler.enabled }}
  schedulerName: {{ $values.scheduler.name | quote }}
  {{- end }}
{{- if $values.scheduler.enabled }}
server:
  schedulerHealthUrl: https://127.0.0.1:10259/livez
  {{- if not $values.webhook.enabled }}
  probePort: {{ int $values.webhook.port }}
  {{- end }}
extender:
  schedulerConfigFile: /etc/kube-scheduler/config.yaml
  schedulerLease: {{ .Release.Namespace }}/{{ include "gpu-extender.schedulerLease" . }}
{{- end }}
webhook:
  port: {{ int $values.webhook.port }}
  registration: {{ and $values.webhook.enabled (eq $values.webhook.registration "patched") | ternary "patched" "rendered" }}
  deadlineMilliseconds: {{ include "gpu-extender.deadlineMilliseconds" . }}
  {{- if $values.webhook.selfSigned.enabled }}
  selfSigned:
    enabled: {{ $values.webhook.enabled }}
    namespace: {{ .Release.Namespace | quote }}
    secretName: {{ include "gpu-extender.certificateSecret" . }}
    registrationName: {{ include "gpu-extender.fullname" . }}
    dnsNames: [{{ include "gpu-extender.serviceHost" . }}]
  {{- else if $values.webhook.enabled }}
  certificateFile: /etc/gpu-extender/certificate/tls.crt
  keyFile: /etc/gpu-extender/certificate/tls.key
  selfSigned:
    registrationName: {{ include "gpu-extender.fullname" . }}
    dnsNames: [{{ include "gpu-extender.serviceHost" . }}]
  {{- end }}
{{- end -}}

{{/* The configuration file. */}}
{{- define "gpu-extender.config" -}}
{{- $own := include "gpu-extender.ownConfig" . | fromYaml -}}
{{- mustMergeOverwrite (deepCopy .Values.config) $own | toYaml -}}
{{- end -}}

{{/* Port of the verbs, on loopback. */}}
{{- define "gpu-extender.port" -}}
{{- dig "server" "port" 8888 .Values.config | int -}}
{{- end -}}

{{/* Address of the verbs, on loopback, and the URL of both. */}}
{{- define "gpu-extender.host" -}}
{{- dig "server" "host" "127.0.0.1" .Values.config -}}
{{- end -}}

{{- define "gpu-extender.url" -}}
{{- $host := include "gpu-extender.host" . -}}
http://{{ contains ":" $host | ternary (printf "[%s]" $host) $host }}:{{ include "gpu-extender.port" . }}
{{- end -}}

{{/* Members of all fallback chains. */}}
{{- define "gpu-extender.chained" -}}
{{- $names := list -}}
{{- range dig "fallback" "chains" list .Values.config -}}
{{- $names = concat $names . -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* Whether our scores fill nodes, empty if not: by the weights, or those of the profile. */}}
{{- define "gpu-extender.isPacking" -}}
{{- $scoring := get .Values.config "scoring" | default dict -}}
{{- $weights := get $scoring "weights" | default dict -}}
{{- $usual := ternary 100 0 (has (get $scoring "profile") (list "packing" "training")) -}}
{{- range $term := list "fragmentation" "scarcity" -}}
{{- if hasKey $weights $term | ternary (get $weights $term) $usual | int -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* What kube-scheduler is started with. */}}
{{- define "gpu-extender.schedulerConfig" -}}
{{- $deadline := dig "extender" "deadlineMilliseconds" 800 .Values.config | int -}}
{{- $maxScore := dig "scoring" "maxScore" 10 .Values.config | int -}}
{{- $resources := .Files.Get "files/managed-resources.yaml" | fromYamlArray -}}
{{- $chained := include "gpu-extender.chained" . | fromJsonArray -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: 1000
  burst: 2000
leaderElection:
  leaderElect: {{ .Values.scheduler.leaderElect }}
  resourceNamespace: {{ toYaml .Release.Namespace }}
  resourceName: {{ include "gpu-extender.schedulerLease" . }}
profiles:
- schedulerName: {{ toYaml .Values.scheduler.name }}
  {{- if include "gpu-extender.isPacking" . }}
  plugins:
    score:
      disabled:
      - name: NodeResourcesFit
      - name: NodeResourcesBalancedAllocation
  {{- end }}
extenders:
- urlPrefix: {{ include "gpu-extender.url" . }}/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  weight: {{ div 100 $maxScore | min 10 | max 1 }}
  httpTimeout: {{ add 1 (div $deadline 1000) }}s
  nodeCacheCapable: true
  ignorable: false
  managedResources:
  {{- range concat $resources $chained (.Values.scheduler.managedResources | default list) | uniq | sortAlpha }}
  - name: {{ . }}
    ignoredByScheduler: false
  {{- end }}
{{- end -}}

{{/* Name with the hash of the contents: of (dict "name" prefix "text" contents). */}}
{{- define "gpu-extender.hashed" -}}
{{ .name }}-{{ .text | sha256sum | trunc 10 }}
{{- end -}}

{{- define "gpu-extender.configName" -}}
{{- include "gpu-extender.hashed" (dict "name" (printf "%s-config" (include "gpu-extender.fullname" .)) "text" (include "gpu-extender.config" .)) -}}
{{- end -}}

{{- define "gpu-extender.schedulerConfigName" -}}
{{- include "gpu-extender.hashed" (dict "name" (printf "%s-scheduler" (include "gpu-extender.fullname" .)) "text" (include "gpu-extender.schedulerConfig" .)) -}}
{{- end -}}
