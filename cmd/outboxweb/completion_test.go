package main

import (
	"context"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestComplete_offersWhatMayFollow(t *testing.T) {
	t.Parallel()
	commands := newParser(new(cli), streams{out: io.Discard, err: io.Discard}).Model.Node
	for _, c := range []struct {
		line     string
		has, not []string
	}{
		{"se", []string{"serve"}, []string{"sample"}},
		{"", []string{"serve", "campaigns", "completion"}, []string{"list"}},
		{"campaigns ", []string{"list", "pause"}, []string{"serve"}},
		{"--log-format json campaigns li", []string{"list"}, []string{"pause"}},
		{"serve --li", []string{"--listen"}, []string{"--live"}},
		{"serve --no-w", []string{"--no-worker"}, nil},
		{"serve --auth ", []string{"none", "jwt", "token"}, []string{"--listen"}},
		{"report --log-format t", []string{"text"}, []string{"json"}},
		{"alerts mute dead --for ", []string{"24h"}, []string{"--for"}},
		{"--mode ", []string{"outbox_apply_only", "shadow_only"}, []string{"--mode"}},
		{"token create --role ", []string{"viewer", "admin"}, []string{"--role"}},
		{"serve --auth-preset ", []string{"tailscale", "pomerium"}, nil},
		{"runs start ", []string{"replay", "verify", "rebuild"}, []string{"--all", "rehearse"}},
		{"runs list --status ", []string{"interrupted"}, []string{"--status"}},
		{"failures projections --status ", []string{"open", "resolved"}, nil},
		{"alerts mute ", []string{"dead_rows", "all"}, nil},
		{"completion ", []string{"bash", "fish"}, nil},
		{"serve --listen ", nil, []string{"--auth", "serve"}},
		{"serve --tls-cert ho", []string{isFile}, nil},
		{"--log-format=js", []string{"--log-format=json"}, []string{"--log-format=text"}},
		{"--log-format =", []string{"text", "json"}, nil}, // as bash splits it
		{"--log-format = js", []string{"json"}, []string{"text"}},
		{"serve --tls-cert=ho", []string{isFile}, nil},
		{"campaigns --l", []string{"--log-format"}, nil},
	} {
		var out strings.Builder
		complete(&out, commands, strings.Split(c.line, " "))
		var got []string
		for line := range strings.Lines(out.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		for _, word := range c.has {
			must.Hold(t, slices.Contains(got, word), "%q is completed to %q, without %s", c.line, got, word)
		}
		for _, word := range c.not {
			must.Hold(t, !slices.Contains(got, word), "%q is completed to %q, with %s", c.line, got, word)
		}
	}
}

// A tag that names no values would offer none.
func TestCompletion_tagsNameValues(t *testing.T) {
	t.Parallel()
	model, used := newParser(new(cli), streams{out: io.Discard, err: io.Discard}).Model, map[string]bool{}
	all := slices.Clone(model.Flags)
	for _, leaf := range model.Leaves(false) {
		all = append(all, leaf.Flags...)
		for _, arg := range leaf.Positional {
			all = append(all, &kong.Flag{Value: arg})
		}
	}
	for _, v := range all {
		name := v.Tag.Get("values")
		used[name] = true
		for _, value := range known[name] {
			otherwise := name == "alert-rule" || name == "role" // as their help names them
			must.Hold(t, otherwise || strings.Contains(v.Help, value), "the help of %s does not name %s: %s", v.Name, value, v.Help)
		}
	}
	delete(used, "")
	must.Equal(t, slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(known)), "the lists of values that flags and arguments use")
}

// Each script asks the program, takes its words, and names files itself.
func TestCompletion_inShells(t *testing.T) {
	t.Parallel()
	bash := `source FILE; for w in "serve --no-wo" "serve --tls-cert ho" "--log-format = js"; do
  COMP_WORDS=(outboxweb $w); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _outboxweb; echo "${COMPREPLY[@]}"
done; complete -p outboxweb`
	fish := `source FILE; for w in "serve --no-wo" "serve --tls-cert ho" "serve --tls-cert=ho" "--log-format=js" "campaigns li"
  complete -C "outboxweb $w"
end`
	zsh := `zmodload zsh/zpty; zpty z zsh -f -i
zpty -w z "PS1=; autoload -Uz compinit; compinit -u -D; source FILE; echo re''ady"
zpty -r z line '*ready*'
for w f in "serve --no-wo" --no-worker "serve --tls-cert=ho" cert=hosts.pem "--log-format=js" format=json "campaigns li" "campaigns list"; do
  zpty -w -n z "outboxweb $w"$'\t'; zpty -r z line "*$f*"; echo $f; zpty -w -n z $'\x15'
done`
	for name, one := range map[string]struct{ script, want string }{
		"bash": {bash, "--no-worker\nhosts.pem\njson\ncomplete -F _outboxweb outboxweb\n"},
		"fish": {fish, "--no-worker\tRun the embedded worker.\nhosts.pem\n--tls-cert=hosts.pem\n--log-format=json\n" +
			"list\tList campaigns and why they are not advancing. Long ids are shortened; --json has them in full.\n"},
		"zsh": {zsh, "--no-worker\ncert=hosts.pem\nformat=json\ncampaigns list\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(name)
			if err != nil && os.Getenv("CI") == "" {
				t.Skipf("without %s its completions cannot be tried: %v", name, err)
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "script")
			text, errs, code := runIn(t, dir, "completion", name)
			must.Need(t, code == 0 && errs == "" && os.WriteFile(file, []byte(text), 0o600) == nil && os.WriteFile(filepath.Join(dir, "hosts.pem"), nil, 0o600) == nil, "exit %d: %s", code, errs)
			ctx, cancel := context.WithTimeout(t.Context(), must.Patience) // zsh waits for what it is to say
			defer cancel()
			cmd := exec.CommandContext(ctx, program, "-c", strings.ReplaceAll(one.script, "FILE", file))
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
			must.Equal(t, string(must.Get(cmd.CombinedOutput()).Or(t)), one.want)
		})
	}
}
