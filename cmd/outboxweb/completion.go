package main

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// completionCmd prints a shell's completions: a script that asks the program what may follow.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

//go:embed completion
var completionScripts embed.FS

// Run prints the script.
func (c *completionCmd) Run(a *app) error {
	script, err := completionScripts.ReadFile("completion/outboxweb." + c.Shell)
	if err == nil {
		_, err = a.out.Write(script)
	}
	return err
}

// asksCompletion is the first argument of a script's question. The others are the words behind the program's
// name up to the cursor. It is no command: the words may not parse.
const asksCompletion = "complete"

// isFile answers that the name of a file or a directory follows.
const isFile = ":file"

// known are the values of flags and arguments with the tag values: checkValues and the commands check
// them, whose refusals are better sentences than kong's of an enum.
var known = map[string][]string{
	"mode": texts(campaign.Modes), "role": texts(operator.Roles), "campaign-state": texts(campaign.States), "row-status": texts(event.Statuses),
	"cursor-state":     {campaign.CursorQuarantined, campaign.CursorPaused, campaign.CursorBehind},
	"failure-status":   texts([]campaign.FailureStatus{campaign.FailureOpen, campaign.FailureResolved}),
	"operation-status": texts(operations.OperationStatuses), "run-status": texts(replay.RunStatuses), "run-kind": texts(replay.RunKinds), "scoped-run-kind": texts(replay.ScopedRunKinds),
	"preset":        slices.Compact(slices.Sorted(slices.Values(slices.Concat(auth.PresetNames(auth.KindJWT), auth.PresetNames(auth.KindProxyHeader))))),
	"groups-format": auth.GroupsFormats,
	"alert-rule":    append(ruleNames(), "all"),
}

// checkValues refuses a state, a status or a kind that is not known. Other values are checked where they are
// parsed.
func checkValues(parsed *kong.Context) error {
	for _, p := range parsed.Path {
		value, written := p.Positional, ""
		switch {
		case p.Flag != nil:
			value, written = p.Flag.Value, "--"+p.Flag.Name
		case value != nil:
			written = strings.ToUpper(value.Name)
		default:
			continue
		}
		list := value.Tag.Get("values")
		field := list[strings.LastIndexByte(list, '-')+1:]
		if !slices.Contains([]string{"state", "status", "kind"}, field) {
			continue
		}
		if _, err := event.ParseName(field, value.Target.String(), known[list]); err != nil {
			return asUsage(written, err)
		}
	}
	return nil
}

func texts[T ~string](names []T) (all []string) {
	for _, name := range names {
		all = append(all, string(name))
	}
	return all
}

func ruleNames() (all []string) {
	for _, r := range alerts.AlertRules() {
		all = append(all, r.Name)
	}
	return all
}

// valuesOf lists the values of a flag or an argument that has only a few.
func valuesOf(v *kong.Value) []string {
	if v.Enum == "" {
		return known[v.Tag.Get("values")]
	}
	return v.EnumSlice()
}

// complete prints what may stand in the place of the last word: a word a line, and its help after a tab.
func complete(w io.Writer, program *kong.Node, words []string) {
	last := len(words) - 1
	if words[last] == "=" {
		words[last] = ""
	}
	words = slices.DeleteFunc(words, func(word string) bool { return word == "=" }) // of --flag=value, in bash
	word, words := words[len(words)-1], words[:len(words)-1]

	command, flags := program, program.Flags
	var awaits *kong.Flag
	for _, before := range words {
		switch child := childNamed(command, before); {
		case awaits != nil:
			awaits = nil
		case child != nil:
			command, flags = child, slices.Concat(child.Flags, flags)
		default:
			awaits = valueFlag(flags, before)
		}
	}
	assigned := ""
	if name, _, found := strings.Cut(word, "="); found {
		awaits, assigned = valueFlag(flags, name), name+"="
	}
	offer := func(text, help string) {
		if !strings.HasPrefix(text, word) {
			return
		}
		fmt.Fprintln(w, strings.TrimSuffix(text+"\t"+help, "\t"))
	}
	switch {
	case awaits != nil && (strings.Contains(awaits.PlaceHolder, "FILE") || strings.Contains(awaits.PlaceHolder, "DIR")):
		fmt.Fprintln(w, isFile)
	case awaits != nil:
		for _, value := range valuesOf(awaits.Value) {
			offer(assigned+value, "")
		}
	default:
		offerWords(command, flags, word, offer)
	}
}

// offerWords offers what may follow a command: its commands or its argument's values; flags after a dash, or if
// there is nothing else.
func offerWords(command *kong.Node, flags []*kong.Flag, word string, offer func(text, help string)) {
	plain := false
	for _, child := range command.Children {
		if !child.Hidden {
			plain = true
			offer(child.Name, child.Help)
		}
	}
	for _, arg := range command.Positional {
		for _, value := range valuesOf(arg) {
			plain = true
			offer(value, "")
		}
	}
	if plain && !strings.HasPrefix(word, "-") {
		return
	}
	for _, flag := range flags {
		offer("--"+flag.Name, flag.Help)
		if flag.Tag.Negatable != "" {
			offer("--no-"+flag.Name, flag.Help)
		}
	}
}

func childNamed(command *kong.Node, word string) *kong.Node {
	if i := slices.IndexFunc(command.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
		return command.Children[i]
	}
	return nil
}

// valueFlag finds the flag whose value follows a word.
func valueFlag(flags []*kong.Flag, word string) *kong.Flag {
	if i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return "--"+f.Name == word && !f.IsBool() }); i >= 0 {
		return flags[i]
	}
	return nil
}
