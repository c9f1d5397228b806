package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// actCommands names the command for each action of the API.
var actCommands = map[string]string{
	"/rows/requeue":                                   "requeue",
	"/rows/retry":                                     "retry",
	"/rows/{campaign}/{seq}/requeue":                  "requeue",
	"/rows/{campaign}/{seq}/retry":                    "retry",
	"/rows/{campaign}/{seq}/dead-letter":              "dead-letter",
	"/rows/{campaign}/{seq}/skip":                     "skip",
	"/campaigns/{campaign}/events":                    "append",
	"/campaigns/{campaign}/events/{seq}/unskip":       "unskip",
	"/campaigns/{campaign}/pause":                     "campaigns pause",
	"/campaigns/{campaign}/resume":                    "campaigns resume",
	"/campaigns/{campaign}/replay":                    "campaigns replay",
	"/failures/groups/note":                           "failures note",
	"/projections/{name}/pause":                       "projections pause",
	"/projections/{name}/resume":                      "projections resume",
	"/operations":                                     "requeue",
	"/operations/{operation}/cancel":                  "operations cancel",
	"/operations/{operation}/acknowledge":             "operations acknowledge",
	"/runs":                                           "runs start",
	"/runs/{run}/cancel":                              "runs cancel",
	"/runs/{run}/resume":                              "runs resume",
	"/rehearsals":                                     "rehearse",
	"/gaps/repair":                                    "gaps",
	"/tokens/{token}/revoke":                          "token revoke",
	"/publishers/{topic}/{publisher}/pause":           "publishers pause",
	"/publishers/{topic}/{publisher}/resume":          "publishers resume",
	"/publisher-names/{publisher}/pause":              "publishers pause",
	"/publisher-names/{publisher}/resume":             "publishers resume",
	"/publishers/{topic}/{publisher}/reset":           "publishers reset",
	"/publishers/{topic}/{publisher}/seek":            "publishers seek",
	"/publishers/{topic}/{publisher}/skip":            "publishers skip",
	"/publishers/{topic}/{publisher}/test":            "publishers test",
	"/alerts/receivers/{receiver}/test":               "alerts test",
	"/alerts/rules/{rule}/mute":                       "alerts mute",
	"/alerts/rules/{rule}/unmute":                     "alerts unmute",
	"/intake/{source}/rejections/{rejection}/retry":   "intake retry",
	"/intake/{source}/rejections/{rejection}/discard": "intake discard",
	"/intake/{source}/hand-over":                      "intake hand-over",
}

// withoutCommand are the routes that take a POST and have no command, with the
// reason.
var withoutCommand = map[string]string{
	"/campaigns/{campaign}/events/{seq}/reveal": "the command line reads the database itself, with the rights of whoever runs it, and hides nothing",
	"/operations/preview":                       "it changes nothing; starting an operation says the same, and asks for its phrase",
}

func TestCommands_doWhatTheAPIDoes(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(filepath.Join(root, "internal/handlers/openapi.json"))).Or(t)
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	must.OK(t, json.Unmarshal(text, &document))
	var c cli
	commands := map[string]bool{}
	for _, leaf := range newParser(&c, streams{}).Model.Leaves(false) {
		name, _, _ := strings.Cut(strings.TrimPrefix(leaf.FullPath(), "outboxweb "), " <")
		commands[strings.TrimSpace(name)] = true
	}
	acts := 0
	for path, methods := range document.Paths {
		if methods["post"] == nil {
			continue
		}
		acts++
		command, exempt := actCommands[path], withoutCommand[path] != ""
		if exempt == (command != "") {
			t.Errorf("POST %s is to have a command, or a reason to have none", path)
		}
		if command != "" && !commands[command] {
			t.Errorf("POST %s is said to be the command %q, which there is not: %v", path, command, commands)
		}
	}
	if want := len(actCommands) + len(withoutCommand); acts != want {
		t.Errorf("%d routes take a POST, and %d are told of", acts, want)
	}
}
