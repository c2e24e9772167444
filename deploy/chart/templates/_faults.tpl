{{/*
Sentences about values that contradict each other, as a JSON list. What one value alone
says wrongly, values.schema.json refuses.
*/}}
{{- define "gpu-extender.faults" -}}
{{- $values := .Values -}}
{{- $webhook := $values.webhook -}}
{{- $scheduler := $values.scheduler -}}
{{- $config := $values.config -}}
{{- $budget := $values.podDisruptionBudget -}}
{{- $faults := list -}}

{{- if not $values.image.repository -}}
{{- $faults = append $faults "image.repository: there is no default. Build the image as docs/install.md says, push it to a registry that your nodes pull from, and name it: --set image.repository=REGISTRY/gpu-extender" -}}
{{- end -}}

{{- $name := include "gpu-extender.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- $faults = append $faults (printf "fullnameOverride: wanted a name that begins with a letter and has letters, digits and hyphens alone, as a Service must, got %q, by the name of the release if none is given" $name) -}}
{{- end -}}
{{- $found := list "app" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" (dig "election" "activeLabel" "gpu-extender.io/active" $config) -}}
{{- range $path, $labels := dict "commonLabels" $values.commonLabels "podLabels" $values.podLabels -}}
{{- range $label, $_ := $labels -}}
{{- if has $label $found -}}
{{- $faults = append $faults (printf "%s: wanted other labels than %s, by which our pods are found" $path $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $path, $image := dict "image" $values.image "scheduler.image" $scheduler.image -}}
{{- if regexMatch "@|:[^/]*$" $image.repository -}}
{{- $faults = append $faults (printf "%s.repository: wanted a name without tag and digest, got %q. Set %s.tag or %s.digest" $path $image.repository $path $path) -}}
{{- end -}}
{{- end -}}

{{- $host := include "gpu-extender.host" . -}}
{{- if not (or (eq $host "localhost") (eq $host "::1") (hasPrefix "127." $host)) -}}
{{- $faults = append $faults (printf "config.server.host: wanted a loopback address, got %q. kube-scheduler calls the gpu-extender beside it, and any other client of the verbs could ask about the cluster" $host) -}}
{{- end -}}
{{- if eq (include "gpu-extender.port" .) "0" -}}
{{- $faults = append $faults "config.server.port: wanted the port that kube-scheduler is to call, got 0" -}}
{{- end -}}
{{- if eq (include "gpu-extender.port" .) (toString (int $webhook.port)) -}}
{{- $faults = append $faults (printf "config.server.port and webhook.port: wanted two ports, got %d twice" (int $webhook.port)) -}}
{{- end -}}

{{- $taken := dict "10259" "kube-scheduler" -}}
{{- if or $values.hostNetwork (not $scheduler.enabled) -}}
{{- $_ := set $taken "10250" "the node's kubelet" -}}
{{- end -}}
{{- range $path, $port := dict "config.server.port" (include "gpu-extender.port" .) "webhook.port" (toString (int $webhook.port)) -}}
{{- with get $taken $port -}}
{{- $faults = append $faults (printf "%s: wanted a free port, got %s, on which %s listens" $path $port .) -}}
{{- end -}}
{{- end -}}

{{- $written := dict
  "cluster.source" "the chart's pods watch the cluster that they run in"
  "cluster.files" "the chart's pods watch the cluster that they run in"
  "cluster.kubeconfig" "the chart's pods use their service account"
  "cluster.context" "the chart's pods use their service account"
  "election.leaseName" "it has the name of the release"
  "injection.failurePolicy" "set webhook.failurePolicy"
  "injection.skippedNamespaces" "set webhook.skippedNamespaces"
  "injection.rulesFile" "set rules"
  "extender.schedulerConfigFile" "the chart writes that file where scheduler.enabled is true"
  "webhook.host" "kubelet and the API server call the pod's address"
  "webhook.port" "set webhook.port"
  "webhook.deadlineMilliseconds" "set webhook.timeoutSeconds"
  "webhook.certificateFile" "set webhook.existingSecret"
  "webhook.keyFile" "set webhook.existingSecret"
  "webhook.caFile" "the CA is ca.crt in webhook.existingSecret"
  "webhook.registration" "set webhook.registration beside config"
  "webhook.url" "the API server calls the chart's Service"
  "webhook.clientCaFile" "kubelet's probes come by the same port and have no certificate"
  "server.probePort" "kubelet's probes come by webhook.port"
-}}
{{- range $path, $why := $written -}}
{{- $steps := splitList "." $path -}}
{{- if hasKey (get $config (first $steps) | default dict) (last $steps) -}}
{{- $faults = append $faults (printf "config.%s: wanted nothing, since the chart writes it: %s" $path $why) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "enabled" "namespace" "secretName" "registrationName" "dnsNames" -}}
{{- if hasKey (dig "webhook" "selfSigned" dict $config) $key -}}
{{- $faults = append $faults (printf "config.webhook.selfSigned.%s: wanted nothing, since the chart writes it: set webhook.selfSigned.enabled" $key) -}}
{{- end -}}
{{- end -}}

{{- $sendsTo := dig "injection" "schedulerName" "" $config -}}
{{- if $scheduler.enabled -}}
{{- if eq $scheduler.name "default-scheduler" -}}
{{- $faults = append $faults "scheduler.name: wanted another name than default-scheduler, which the cluster's own kube-scheduler has: both would give away the same GPUs. Choose another name, or set scheduler.enabled=false and have the cluster's own call gpu-extender" -}}
{{- end -}}
{{- if hasKey (get $config "injection" | default dict) "schedulerName" -}}
{{- if ne (toString $sendsTo) $scheduler.name -}}
{{- $faults = append $faults (printf "config.injection.schedulerName: wanted scheduler.name, %q, or nothing, got %q: two schedulers would give away the same GPUs" $scheduler.name (toString $sendsTo)) -}}
{{- end -}}
{{- end -}}
{{- range $path := list "extender.schedulerLease" "server.schedulerHealthUrl" -}}
{{- $steps := splitList "." $path -}}
{{- if hasKey (get $config (first $steps) | default dict) (last $steps) -}}
{{- $faults = append $faults (printf "config.%s: wanted nothing with scheduler.enabled: true, since the chart writes it" $path) -}}
{{- end -}}
{{- end -}}
{{- if not $webhook.enabled -}}
{{- if not $values.schedulerNamePolicy.enabled -}}
{{- $faults = append $faults "webhook.enabled: wanted true with scheduler.enabled: true. Without the webhook nobody sends GPU pods to the second scheduler, and the cluster's own would give away the same GPUs. On Kubernetes 1.36 or newer, schedulerNamePolicy.enabled=true sends them, too" -}}
{{- end -}}
{{- end -}}
{{- if not (include "gpu-extender.schedulerTag" .) -}}
{{- if not $scheduler.image.digest -}}
{{- $tested := .Files.Get "files/kube-scheduler-images.yaml" | fromYaml | keys | sortAlpha | join ", " -}}
{{- $faults = append $faults (printf "scheduler.image.tag: wanted a tag for Kubernetes %s, which gpu-extender is not tested on (those are %s). Set it to the kube-scheduler of your cluster's minor, such as v%s.0" (include "gpu-extender.minor" .) $tested (include "gpu-extender.minor" .)) -}}
{{- end -}}
{{- end -}}
{{- $replicas := int $values.replicaCount -}}
{{- if and (gt $replicas 1) (not $scheduler.leaderElect) -}}
{{- $faults = append $faults (printf "scheduler.leaderElect: wanted true with replicaCount %d: each kube-scheduler would place the same pods" $replicas) -}}
{{- end -}}
{{- if $budget.enabled -}}
{{- if and (kindIs "invalid" $budget.minAvailable) (kindIs "invalid" $budget.maxUnavailable) -}}
{{- $faults = append $faults "podDisruptionBudget: wanted minAvailable or maxUnavailable, got neither: no node with a pod of ours could be drained" -}}
{{- else if and (not (kindIs "invalid" $budget.minAvailable)) (not (kindIs "invalid" $budget.maxUnavailable)) -}}
{{- $faults = append $faults "podDisruptionBudget: wanted minAvailable or maxUnavailable, got both. Set podDisruptionBudget.minAvailable=null for the latter" -}}
{{- else if kindIs "invalid" $budget.maxUnavailable -}}
{{- $given := toString $budget.minAvailable -}}
{{- $least := int $budget.minAvailable -}}
{{- if hasSuffix "%" $given -}}
{{- /* Kubernetes rounds a part of a pod up. */ -}}
{{- $least = div (add 99 (mul $replicas (trimSuffix "%" $given | int))) 100 | int -}}
{{- end -}}
{{- if ge $least $replicas -}}
{{- $faults = append $faults (printf "podDisruptionBudget.minAvailable: wanted less than replicaCount, %d, got %s: no node with a pod of ours could be drained. Raise replicaCount, or set podDisruptionBudget.enabled=false" $replicas $given) -}}
{{- end -}}
{{- else if has (toString $budget.maxUnavailable) (list "0" "0%") -}}
{{- $faults = append $faults "podDisruptionBudget.maxUnavailable: wanted 1 or more, got 0: no node with a pod of ours could be drained" -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- if $values.networkPolicy.enabled -}}
{{- $faults = append $faults "networkPolicy.enabled: wanted false with scheduler.enabled: false, since no NetworkPolicy applies to pods on the host's network" -}}
{{- end -}}
{{- end -}}
{{- if and $scheduler.enabled $values.hostNetwork $values.networkPolicy.enabled -}}
{{- $faults = append $faults "networkPolicy.enabled: wanted false with hostNetwork: true, since no NetworkPolicy applies to pods on the host's network" -}}
{{- end -}}

{{- if $webhook.enabled -}}
{{- $sources := list -}}
{{- if $webhook.selfSigned.enabled -}}{{- $sources = append $sources "webhook.selfSigned.enabled" -}}{{- end -}}
{{- if $webhook.existingSecret -}}{{- $sources = append $sources "webhook.existingSecret" -}}{{- end -}}
{{- if $values.certManager.enabled -}}{{- $sources = append $sources "certManager.enabled" -}}{{- end -}}
{{- if ne (len $sources) 1 -}}
{{- $faults = append $faults (printf "webhook: wanted one source of its certificate, webhook.selfSigned.enabled, webhook.existingSecret or certManager.enabled, got %s" ($sources | join " and " | default "none")) -}}
{{- end -}}
{{- if eq $webhook.registration "rendered" -}}
{{- if $webhook.selfSigned.enabled -}}
{{- $faults = append $faults "webhook.registration: wanted patched with webhook.selfSigned.enabled, got rendered: nobody knows the CA before gpu-extender has made it, and calls would fail until it is written in" -}}
{{- end -}}
{{- if and $webhook.existingSecret (not $webhook.caBundle) -}}
{{- $faults = append $faults "webhook.caBundle: wanted the CA of the certificate in webhook.existingSecret, since webhook.registration is rendered, got none: --set-file webhook.caBundle=ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if and $webhook.caBundle (not (and $webhook.existingSecret (eq $webhook.registration "rendered"))) -}}
{{- $faults = append $faults "webhook.caBundle: wanted nothing but with webhook.registration: rendered and webhook.existingSecret; else gpu-extender or cert-manager fills it in" -}}
{{- end -}}
{{- end -}}

{{- if not $webhook.enabled -}}
{{- range $path, $given := dict "rules" $values.rules "config.fallback.chains" (dig "fallback" "chains" list $config) -}}
{{- if $given -}}
{{- $faults = append $faults (printf "%s: wanted nothing with webhook.enabled: false: nobody reviews pods, and a policy writes schedulerName and nothing else" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $monitors := list -}}
{{- range $kind := list "podMonitor" "serviceMonitor" -}}
{{- if (get $values.metrics $kind).enabled -}}{{- $monitors = append $monitors (printf "metrics.%s.enabled" $kind) -}}{{- end -}}
{{- end -}}
{{- if gt (len $monitors) 1 -}}
{{- $faults = append $faults (printf "metrics: wanted one monitor, got %s: each replica would be counted twice" (join " and " $monitors)) -}}
{{- end -}}
{{- if and $monitors (not $webhook.enabled) -}}
{{- $faults = append $faults (printf "%s: wanted false with webhook.enabled: false, since /metrics is served off loopback on webhook.port alone" (first $monitors)) -}}
{{- end -}}

{{- if $values.schedulerNamePolicy.enabled -}}
{{- if semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version -}}
{{- $faults = append $faults (printf "schedulerNamePolicy.enabled: wanted Kubernetes 1.36 or newer, where MutatingAdmissionPolicy is stable, got %s. Set schedulerNamePolicy.enabled=false: the webhook writes schedulerName" (include "gpu-extender.minor" .)) -}}
{{- end -}}
{{- if not (include "gpu-extender.sendsTo" .) -}}
{{- $faults = append $faults "schedulerNamePolicy.enabled: wanted false with scheduler.enabled: false, since GPU pods keep their scheduler. Set config.injection.schedulerName to send them to another one" -}}
{{- end -}}
{{- end -}}

{{- $rest := addf (dig "server" "drainSeconds" 5.0 $config) (dig "server" "stopSeconds" 10.0 $config) 5.0 -}}
{{- if lt (float64 $values.terminationGracePeriodSeconds) $rest -}}
{{- $faults = append $faults (printf "terminationGracePeriodSeconds: wanted at least %v, which is config.server.drainSeconds, stopSeconds and 5 s in which the next replica takes over, got %d" $rest (int $values.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- $faults | toJson -}}
{{- end -}}
