package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// completionScript writes a shell's completions to a file.
func completionScript(t *testing.T, shell string) string {
	t.Helper()
	text, errs, code := runIn(t, t.TempDir(), "completion", shell)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	file := filepath.Join(t.TempDir(), "outboxweb."+shell)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// shell finds a shell; with CI set, a missing one is an error.
func shell(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("%s must be there in CI: %v", name, err)
	}
	if err != nil {
		t.Skipf("without %s its completions cannot be tried: %v", name, err)
	}
	return path
}

var completionCases = []struct {
	line string
	has  []string
	not  []string
}{
	{"outboxweb se", []string{"serve"}, []string{"sample"}},
	{"outboxweb ", []string{"serve", "campaigns", "completion"}, []string{"list"}},
	{"outboxweb campaigns ", []string{"list", "pause"}, []string{"serve"}},
	{"outboxweb --log-format json campaigns li", []string{"list"}, []string{"pause"}},
	{"outboxweb serve --li", []string{"--listen"}, []string{"--live"}},
	{"outboxweb serve --no-w", []string{"--no-worker"}, nil},
	{"outboxweb serve --auth ", []string{"none", "jwt", "token"}, []string{"--listen"}},
	{"outboxweb report --log-format t", []string{"text"}, []string{"json"}},
	{"outboxweb alerts mute dead --for ", []string{"24h"}, []string{"--for"}},
	{"outboxweb --mode ", []string{"outbox_apply_only", "shadow_only"}, []string{"--mode"}},
	{"outboxweb token create --role ", []string{"viewer", "admin"}, []string{"--role"}},
	{"outboxweb serve --auth-preset ", []string{"tailscale", "pomerium"}, nil},
	{"outboxweb runs start ", []string{"replay", "verify", "rebuild"}, []string{"--all", "rehearse"}},
	{"outboxweb runs list --status ", []string{"interrupted"}, []string{"--status"}},
	{"outboxweb failures projections --status ", []string{"open", "resolved"}, nil},
	{"outboxweb alerts mute ", []string{"dead_rows", "all"}, nil},
	{"outboxweb completion ", []string{"bash", "fish"}, nil},
	{"outboxweb serve --listen ", nil, []string{"--auth", "serve"}},
	{"outboxweb serve --tls-cert ho", []string{"hosts.pem"}, nil},
}

func checkCompletions(t *testing.T, complete func(line string) string) {
	t.Helper()
	for _, c := range completionCases {
		got := strings.Fields(complete(c.line))
		for _, word := range c.has {
			if !slices.Contains(got, word) {
				t.Errorf("%q is completed to %q, without %s", c.line, got, word)
			}
		}
		for _, word := range c.not {
			if slices.Contains(got, word) {
				t.Errorf("%q is completed to %q, with %s", c.line, got, word)
			}
		}
	}
}

// A tag that names no values would offer none.
func TestCompletion_tagsNameValues(t *testing.T) {
	t.Parallel()
	var c cli
	tagged := 0
	check := func(v *kong.Value) {
		name := v.Tag.Get("values")
		if name == "" {
			return
		}
		if tagged++; len(known[name]) == 0 {
			t.Errorf("%s has the values %q, which are unknown", v.Name, name)
		}
		for _, value := range known[name] {
			if name != "alert-rule" && name != "role" && !strings.Contains(v.Help, value) { // its help names them otherwise
				t.Errorf("the help of %s does not name %s: %s", v.Name, value, v.Help)
			}
		}
	}
	var walk func(*kong.Node)
	walk = func(n *kong.Node) {
		for _, flag := range n.Flags {
			check(flag.Value)
		}
		for _, arg := range n.Positional {
			check(arg)
		}
		for _, child := range n.Children {
			walk(child)
		}
	}
	walk(newParser(&c, streams{out: io.Discard, err: io.Discard}).Model.Node)
	if tagged < len(known) {
		t.Errorf("%d flags and arguments use %d lists", tagged, len(known))
	}
}

// inShell runs a script of a shell, in a directory with one file.
func inShell(t *testing.T, name, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hosts.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(shell(t, name), "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func TestCompletion_inBash(t *testing.T) {
	t.Parallel()
	file := completionScript(t, "bash")
	complete := func(line string) string {
		return inShell(t, "bash", `source `+file+`
COMP_LINE='`+line+`'; read -ra COMP_WORDS <<<"$COMP_LINE"; [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); $(complete -p outboxweb | sed 's/.*-F \([^ ]*\) .*/\1/') outboxweb; printf '%s\n' "${COMPREPLY[@]}"`)
	}
	checkCompletions(t, complete)
	got := inShell(t, "bash", `source `+file+`; COMP_WORDS=(outboxweb --log-format = js); COMP_CWORD=3; _outboxweb; echo "${COMPREPLY[@]}"`)
	if got != "json\n" { // bash splits words at =
		t.Errorf("--log-format=js is completed to %q", got)
	}
}

func TestCompletion_inFish(t *testing.T) {
	t.Parallel()
	file := completionScript(t, "fish")
	checkCompletions(t, func(line string) string {
		return inShell(t, "fish", "source "+file+"; complete -C '"+line+"' | string split -f 1 \\t; true") // the rest of a line is its help
	})
}

// An interactive zsh would be needed to complete; that the script is one, and defines the function,
// needs none.
func TestCompletion_zshReadsIt(t *testing.T) {
	t.Parallel()
	file := completionScript(t, "zsh")
	got := inShell(t, "zsh", "autoload -Uz compinit && compinit -u -D; source "+file+"; whence -w _outboxweb; echo ${_comps[outboxweb]}")
	if got != "_outboxweb: function\n_outboxweb\n" {
		t.Errorf("zsh says %q", got)
	}
	inShell(t, "zsh", "setopt no_exec; source "+file)
}
