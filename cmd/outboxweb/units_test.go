package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// unit is a systemd unit: the values of each key of each section.
type unit map[string]map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(root, "docs", name))).Or(t)
	u, section := unit{}, ""
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = strings.Trim(line, "[]")
			u[section] = map[string][]string{}
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found || section == "" {
			t.Fatalf("%s:%d: %q is no key with a value in a section", name, number+1, line)
		}
		u[section][key] = append(u[section][key], value)
	}
	return u
}

// The units in docs match the program: its flags, its variables, and the one socket that it takes.
func TestUnits_fitTheProgram(t *testing.T) {
	t.Parallel()
	socket, service := readUnit(t, "outboxweb.socket"), readUnit(t, "outboxweb.service")
	if s := socket["Socket"]; len(s["ListenStream"]) != 1 || s["Accept"] != nil || !slices.Equal(s["SocketMode"], []string{"0660"}) {
		t.Errorf("the socket unit has %v", s)
	}
	if got := service["Unit"]["Requires"]; !slices.Equal(got, []string{"outboxweb.socket"}) {
		t.Errorf("the service requires %v", got)
	}
	config := filepath.Join(t.TempDir(), "outboxweb.yaml")
	command := strings.ReplaceAll(service["Service"]["ExecStart"][0], "/etc/outboxweb/outboxweb.yaml", config)
	for _, b := range blocks(t, "deploy.md", "systemd") {
		switch b.language {
		case "yaml":
			must.OK(t, os.WriteFile(config, []byte(b.text), 0o600))
		case "nginx":
			if !strings.Contains(b.text, "proxy_pass http://unix:"+socket["Socket"]["ListenStream"][0]+":;") {
				t.Errorf("the proxy does not connect to %v", socket["Socket"]["ListenStream"])
			}
			readNginx(t, b.text)
		}
	}
	var c cli
	parser := newParser(&c, streams{out: new(bytes.Buffer), err: new(bytes.Buffer)})
	must.Get(parser.Parse(strings.Fields(command)[1:])).Or(t)
	if err := c.Serve.check(); err != nil || c.Serve.Listen != systemd {
		t.Errorf("it listens on %q: %v", c.Serve.Listen, err)
	}
	if err := c.Serve.checkPlace(&net.UnixAddr{Name: socket["Socket"]["ListenStream"][0], Net: "unix"}); err != nil || !c.Serve.authenticates() {
		t.Errorf("--auth %s: %v", c.Serve.Auth, err)
	}
	var known []string
	for _, flag := range parser.Model.Flags {
		known = append(known, flag.Envs...)
	}
	for _, variable := range service["Service"]["Environment"] {
		if name, _, _ := strings.Cut(variable, "="); !slices.Contains(known, name) {
			t.Errorf("%s is no flag's variable", name)
		}
	}
}

// systemd-analyze has no complaints about them, if it is installed.
func TestUnits_pleaseSystemd(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze; TestUnits_fitTheProgram reads the units without it")
	}
	program, err := exec.LookPath("outboxweb")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, name := range []string{"outboxweb.socket", "outboxweb.service"} {
		text := must.Get(os.ReadFile(filepath.Join(root, "docs", name))).Or(t)
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, bytes.ReplaceAll(text, []byte("/usr/local/bin/outboxweb"), []byte(program)), 0o600))
		args = append(args, path)
	}
	if out, err := exec.Command(analyze, args...).CombinedOutput(); err != nil || bytes.Contains(out, []byte("outboxweb.")) {
		t.Errorf("%v\n%s", err, out)
	}
}
