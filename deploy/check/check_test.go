// Package check reads the manifests of deploy as the systems do that they are for, without any of
// these systems.
package check

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const deploy = ".."

// This module does without the program's, and so without its internal/must.

func ok(t *testing.T, err error) {
	t.Helper()
	need(t, err == nil, "%v", err)
}

func need(t *testing.T, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}

func hold(t *testing.T, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deploy, "Dockerfile"))
	ok(t, err)
	read, err := parser.Parse(bytes.NewReader(text))
	ok(t, err)
	hold(t, len(read.Warnings) <= 0, "warnings: %v", read.Warnings)
	stages, _, err := instructions.Parse(read.AST, nil)
	ok(t, err)
	last := stages[len(stages)-1]
	need(t, len(stages) == 2 && last.BaseName == "scratch", "%d stages, the last one from %s", len(stages), last.BaseName)
	found := map[string]any{}
	for _, c := range last.Commands {
		found[strings.ToLower(c.Name())] = c
	}
	user, _ := found["user"].(*instructions.UserCommand)
	hold(t, user != nil && user.User == "65532:65532", "the user is %+v, want a number other than 0, which Kubernetes can check", user)
	h, _ := found["healthcheck"].(*instructions.HealthCheckCommand)
	hold(t, h != nil && slices.Equal(h.Health.Test, []string{"CMD", "/outboxweb", "health"}), "the health check is %+v", h)
	e, _ := found["entrypoint"].(*instructions.EntrypointCommand)
	hold(t, e != nil && !e.PrependShell, "the entry point is %+v: the image has no shell", e)
}

func TestCompose(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs(filepath.Join(deploy, "compose.yaml"))
	ok(t, err)
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}}},
		func(o *loader.Options) { o.SetProjectName("outboxweb", true) })
	ok(t, err)
	for _, name := range []string{"outboxweb-1", "outboxweb-2"} {
		s := project.Services[name]
		hold(t, s.ReadOnly && slices.Equal(s.CapDrop, []string{"ALL"}) && len(s.Ports) == 0 && s.Hostname == name, "%s: read-only %v, without %v, ports %v, hostname %q", name, s.ReadOnly, s.CapDrop, s.Ports, s.Hostname)
	}
	for name, s := range project.Services {
		for _, port := range s.Ports {
			hold(t, port.HostIP == "127.0.0.1", "%s is published on %q", name, port.HostIP)
		}
	}
	made, err := os.ReadFile(filepath.Join(deploy, "make-secrets"))
	ok(t, err)
	for name, secret := range project.Secrets {
		hold(t, filepath.Base(secret.File) == name && bytes.Contains(made, []byte(">"+name+"\n")), "make-secrets does not make %s, which is %s", name, secret.File)
	}
	for name, config := range project.Configs {
		_, err := os.Stat(config.File)
		hold(t, err == nil, "the configuration %s: %v", name, err)
	}
}

// objects renders a kustomization, and decodes each object strictly into its type. They are found by
// their kind, and each Ingress by kind and name.
func objects(t *testing.T, overlay string) map[string]any {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(deploy, "kubernetes", overlay))
	ok(t, err)
	all := map[string]any{}
	for _, r := range rendered.Resources() {
		into, known := map[string]any{
			"apps/v1 Deployment": new(apps.Deployment), "apps/v1 StatefulSet": new(apps.StatefulSet),
			"v1 Service": new(core.Service), "v1 ServiceAccount": new(core.ServiceAccount), "v1 ConfigMap": new(core.ConfigMap),
			"networking.k8s.io/v1 NetworkPolicy": new(networking.NetworkPolicy), "policy/v1 PodDisruptionBudget": new(policy.PodDisruptionBudget),
			"networking.k8s.io/v1 Ingress": new(networking.Ingress),
		}[r.GetApiVersion()+" "+r.GetKind()]
		need(t, known, "%s %s is no kind that is expected", r.GetApiVersion(), r.GetKind())
		text, err := r.AsYAML()
		if err == nil {
			err = yaml.UnmarshalStrict(text, into)
		}
		need(t, err == nil, "%s: %v", r.GetKind(), err)
		key := r.GetKind()
		if key == "Ingress" {
			key += " " + r.GetName()
		}
		all[key] = into
	}
	return all
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	sqlite, postgres := objects(t, "sqlite"), objects(t, "postgres")
	set, deployment := sqlite["StatefulSet"].(*apps.StatefulSet), postgres["Deployment"].(*apps.Deployment)
	hold(t, *set.Spec.Replicas == 1 && len(set.Spec.VolumeClaimTemplates) == 1, "SQLite: %d replicas with %d volumes", *set.Spec.Replicas, len(set.Spec.VolumeClaimTemplates))
	hold(t, *deployment.Spec.Replicas >= 2, "PostgreSQL: %d replicas", *deployment.Spec.Replicas)
	checkWorkload(t, sqlite, set.Spec.Selector.MatchLabels, set.Spec.Template, "data")
	checkWorkload(t, postgres, deployment.Spec.Selector.MatchLabels, deployment.Spec.Template)
	one, other := set.Spec.Template.Spec.Containers[0], deployment.Spec.Template.Spec.Containers[0]
	for what, pair := range map[string][2]any{
		"security contexts": {one.SecurityContext, other.SecurityContext}, "readiness probes": {one.ReadinessProbe, other.ReadinessProbe},
		"liveness probes": {one.LivenessProbe, other.LivenessProbe}, "resources": {one.Resources, other.Resources},
		"pods' security contexts": {set.Spec.Template.Spec.SecurityContext, deployment.Spec.Template.Spec.SecurityContext},
	} {
		hold(t, reflect.DeepEqual(pair[0], pair[1]), "the %s of the overlays differ", what)
	}
}

// checkWorkload checks a pod by the restricted Pod Security Standard, and that everything that
// selects pods selects it.
func checkWorkload(t *testing.T, all map[string]any, selector map[string]string, pod core.PodTemplateSpec, claims ...string) {
	t.Helper()
	for what, labels := range map[string]map[string]string{
		"workload": selector, "Service": all["Service"].(*core.Service).Spec.Selector,
		"NetworkPolicy":       all["NetworkPolicy"].(*networking.NetworkPolicy).Spec.PodSelector.MatchLabels,
		"PodDisruptionBudget": all["PodDisruptionBudget"].(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels,
	} {
		hold(t, len(labels) != 0, "the %s selects every pod of the namespace", what)
		for key, value := range labels {
			hold(t, pod.Labels[key] == value, "the %s selects %s=%s, and the pod has %v", what, key, value, pod.Labels)
		}
	}
	c, s := pod.Spec.Containers[0], pod.Spec.SecurityContext
	own := c.SecurityContext
	if !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault ||
		*own.AllowPrivilegeEscalation || !*own.ReadOnlyRootFilesystem || !slices.Equal(own.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("the pod is not restricted: %+v, %+v", s, own)
	}
	hold(t, !*pod.Spec.AutomountServiceAccountToken && pod.Spec.ServiceAccountName == all["ServiceAccount"].(*core.ServiceAccount).Name, "the service account is %s, its token mounted: %v", pod.Spec.ServiceAccountName, *pod.Spec.AutomountServiceAccountToken)
	live, ready := c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path
	hold(t, live == "/healthz" && ready == "/readyz", "probes ask %s and %s", live, ready)
	volumes := claims
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
		if v.ConfigMap != nil {
			hold(t, v.ConfigMap.Name == all["ConfigMap"].(*core.ConfigMap).Name, "the pod mounts the configuration %s", v.ConfigMap.Name)
		}
	}
	for _, m := range c.VolumeMounts {
		hold(t, slices.Contains(volumes, m.Name), "%s is mounted from %s, which is no volume", m.MountPath, m.Name)
	}
	hold(t, strings.HasPrefix(c.Image, "registry.example/"), "the image %s claims to exist", c.Image)
}

// Of the two ways to the pods one asks oauth2-proxy; the other is for tokens and monitors alone. Nothing
// needs a snippet, which ingress-nginx ignores by default.
func TestIngress_onlyTokensAndMonitorsPassWithoutASession(t *testing.T) {
	t.Parallel()
	all := objects(t, "ingress-nginx")
	d, service := all["Deployment"].(*apps.Deployment), all["Service"].(*core.Service)
	checkWorkload(t, all, d.Spec.Selector.MatchLabels, d.Spec.Template)
	config := all["ConfigMap"].(*core.ConfigMap).Data["outboxweb.yaml"]
	hold(t, strings.Contains(config, "\nauth: jwt\n"), "the API's Ingress empties no header, and the server believes more than signatures:\n%s", config)
	open := map[string]networking.PathType{}
	for _, name := range []string{"outboxweb", "outboxweb-api"} {
		i := all["Ingress "+name].(*networking.Ingress)
		auth, asked := i.Annotations["nginx.ingress.kubernetes.io/auth-url"]
		if asked && (!strings.Contains(auth, "."+i.Namespace+".svc.") || i.Annotations["nginx.ingress.kubernetes.io/auth-response-headers"] != "X-Outboxweb-Id-Token" ||
			!strings.HasSuffix(i.Annotations["nginx.ingress.kubernetes.io/auth-signin"], "/oauth2/sign_in?rd=$escaped_request_uri")) {
			t.Errorf("the Ingress %s of the namespace %s asks %v", name, i.Namespace, i.Annotations)
		}
		for key := range i.Annotations {
			hold(t, !strings.Contains(key, "snippet"), "the Ingress %s has the annotation %s", name, key)
		}
		for _, path := range i.Spec.Rules[0].HTTP.Paths {
			to := path.Backend.Service
			hold(t, to.Name == service.Name && to.Port.Name == service.Spec.Ports[0].Name, "%s leads to %v", path.Path, to)
			if !asked {
				open[path.Path] = *path.PathType
			}
		}
	}
	if want := map[string]networking.PathType{"/ops/outbox/api": networking.PathTypePrefix, "/ops/outbox/readyz": networking.PathTypeExact, "/ops/outbox/metrics": networking.PathTypeExact}; !reflect.DeepEqual(open, want) {
		t.Errorf("without a session one gets to %v, want %v", open, want)
	}
}

// The dashboard is JSON that Grafana can provision: panels with unique ids and places, each with
// queries of the data source that its variable chooses.
func TestGrafana(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deploy, "monitoring/grafana/dashboards/outboxweb.json"))
	ok(t, err)
	var d struct {
		UID, Title    string
		SchemaVersion int
		Templating    struct{ List []struct{ Name, Type string } }
		Panels        []struct {
			ID         int
			Title      string
			Datasource struct{ Type, UID string }
			GridPos    struct{ X, Y, W, H int }
			Targets    []struct{ RefID, Expr string }
		}
	}
	ok(t, json.Unmarshal(text, &d))
	hold(t, d.UID != "" && d.Title != "" && d.SchemaVersion >= 36 && len(d.Panels) >= 10 && len(d.Templating.List) == 2,
		"the dashboard is %q %q, version %d, with %d panels and %d variables", d.UID, d.Title, d.SchemaVersion, len(d.Panels), len(d.Templating.List))
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		hold(t, !ids[p.ID] && p.Datasource.UID == "${datasource}" && len(p.Targets) > 0, "panel %d %s: its id is taken (%v), or it asks %q with %d queries", p.ID, p.Title, ids[p.ID], p.Datasource.UID, len(p.Targets))
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				other, full := taken[[2]int{x, y}]
				need(t, !full && x <= 23, "panel %s lies on %s, or beyond the grid", p.Title, other)
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			hold(t, strings.Contains(target.Expr, `{job="$job"`), "panel %s asks %s, without the chosen job", p.Title, target.Expr)
		}
	}
}
