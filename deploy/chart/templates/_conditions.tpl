{{/* Which pods the API server tells the webhook of, and which it sends to a scheduler. */}}
{{- define "gpu-extender.createdPods" -}}
- apiGroups: [""]
  apiVersions: [v1]
  resources: [pods]
  operations: [CREATE]
  scope: Namespaced
{{- end -}}

{{- define "gpu-extender.namespaceSelector" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: {{ include "gpu-extender.skippedNamespaces" . }}
  - key: gpu-extender.io/webhook
    operator: NotIn
    values: [disabled]
{{- end -}}

{{- define "gpu-extender.notAMirrorPod" -}}
- name: not-a-mirror-pod
  expression: |
    !has(object.metadata.annotations)
    || !('kubernetes.io/config.mirror' in object.metadata.annotations)
{{- end -}}

{{/* A literal of CEL. */}}
{{- define "gpu-extender.quoted" -}}
'{{ . | replace "\\" "\\\\" | replace "'" "\\'" }}'
{{- end -}}

{{/* Whether k is the name of a managed resource, in CEL; the defaults are those of the
settings. */}}
{{- define "gpu-extender.isManaged" -}}
{{- $prefixes := list "nvidia.com/" "amd.com/" }}
{{- $patterns := list "nvidia.com/gpu" "nvidia.com/gpu.shared" "nvidia.com/mig-*" "amd.com/gpu" }}
{{- $patterns = concat $patterns (list "amd.com/spx_*" "amd.com/dpx_*" "amd.com/tpx_*" "amd.com/qpx_*" "amd.com/cpx_*") }}
{{- if hasKey .Values.config "managedPrefixes" }}{{ $prefixes = .Values.config.managedPrefixes }}{{ end }}
{{- if hasKey .Values.config "gpuResources" }}{{ $patterns = .Values.config.gpuResources }}{{ end }}
{{- $tests := list }}
{{- range $prefixes }}
{{- $tests = append $tests (printf "k.startsWith(%s)" (include "gpu-extender.quoted" .)) }}
{{- end }}
{{- range $pattern := $patterns }}
{{- $counted := false }}
{{- range $prefixes }}{{ if hasPrefix . $pattern }}{{ $counted = true }}{{ end }}{{ end }}
{{- if $counted }}
{{- else if hasSuffix "*" $pattern }}
{{- $tests = append $tests (printf "k.startsWith(%s)" (include "gpu-extender.quoted" (trimSuffix "*" $pattern))) }}
{{- else }}
{{- $tests = append $tests (printf "k == %s" (include "gpu-extender.quoted" $pattern)) }}
{{- end }}
{{- end }}
{{- join " || " $tests | default "false" }}
{{- end -}}

{{/* Whether some container has a resource k that passes a test, in CEL: of
(dict "limits" test "requests" test). */}}
{{- define "gpu-extender.anyResource" -}}
{{- $any := printf `object.spec.containers.exists(c, has(c.resources)
  && ((has(c.resources.limits) && c.resources.limits.exists(k, %s))
  || (has(c.resources.requests) && c.resources.requests.exists(k, %s))))` .limits .requests }}
{{- $any }}
|| (has(object.spec.initContainers) && {{ $any | replace "spec.containers" "spec.initContainers" }})
{{- end -}}

{{- define "gpu-extender.asksForGpu" -}}
{{- $test := include "gpu-extender.isManaged" . }}
{{- include "gpu-extender.anyResource" (dict "limits" $test "requests" $test) }}
|| (has(object.metadata.annotations) && {{ dig "injection" "triggerAnnotation" "task.bkbcs.tencent.com/gpu-type" .Values.config | include "gpu-extender.quoted" }} in object.metadata.annotations)
{{- end -}}

{{/* The same of more than nothing, and of resources alone: then the webhook writes
schedulerName. */}}
{{- define "gpu-extender.asksForSome" -}}
{{- $test := include "gpu-extender.isManaged" . }}
{{- $tests := dict }}
{{- range list "limits" "requests" }}
{{- $_ := set $tests . (printf "(%s) && quantity(c.resources.%s[k]).isGreaterThan(quantity('0'))" $test .) }}
{{- end }}
{{- include "gpu-extender.anyResource" $tests }}
{{- end -}}
