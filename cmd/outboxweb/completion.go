package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// completionCmd prints a shell's completions, made from the commands and flags themselves.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Run prints the script.
func (c *completionCmd) Run(parsed *kong.Context, a *app) error {
	write := map[string]func(io.Writer, []completed){"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	write(a.out, completions(parsed.Model))
	return nil
}

// completed is what may follow a command.
type completed struct {
	path  string       // the command's words; empty for the program itself
	nodes []*kong.Node // its commands
	words []string     // the values of its argument
	flags []*kong.Flag // with those of every command
}

func completions(model *kong.Application) (all []completed) {
	var walk func(n *kong.Node, path string, above []*kong.Flag)
	walk = func(n *kong.Node, path string, above []*kong.Flag) {
		c := completed{path: path, flags: slices.Concat(n.Flags, above)}
		for _, arg := range n.Positional {
			c.words = append(c.words, valuesOf(arg)...)
		}
		for _, child := range n.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				c.nodes = append(c.nodes, child)
			}
		}
		all = append(all, c)
		for _, child := range c.nodes {
			walk(child, strings.TrimSpace(path+" "+child.Name), c.flags)
		}
	}
	walk(model.Node, "", nil)
	return all
}

// known are the values of flags and arguments with the tag values, which commands check themselves:
// their refusals are better sentences than kong's of an enum.
var known = map[string][]string{
	"mode": texts(outbox.Modes), "role": texts(outbox.Roles), "campaign-state": texts(outbox.States), "row-status": texts(outbox.Statuses),
	"cursor-state":     {outbox.CursorQuarantined, outbox.CursorPaused, outbox.CursorBehind},
	"failure-status":   texts([]outbox.FailureStatus{outbox.FailureOpen, outbox.FailureResolved}),
	"operation-status": texts(outbox.OperationStatuses), "run-status": texts(outbox.RunStatuses), "run-kind": texts(outbox.RunKinds), "scoped-run-kind": texts(outbox.ScopedRunKinds),
	"preset":        slices.Compact(slices.Sorted(slices.Values(slices.Concat(auth.PresetNames(auth.KindJWT), auth.PresetNames(auth.KindProxyHeader))))),
	"groups-format": auth.GroupsFormats,
	"alert-rule":    append(ruleNames(), "all"),
}

func texts[T ~string](names []T) (all []string) {
	for _, name := range names {
		all = append(all, string(name))
	}
	return all
}

func ruleNames() (all []string) {
	for _, r := range outbox.AlertRules() {
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

// names lists a flag as it is written.
func names(flag *kong.Flag) []string {
	all := []string{"--" + flag.Name}
	if flag.Tag.Negatable != "" {
		all = append(all, "--no-"+flag.Name)
	}
	return all
}

// namesFile reports whether a flag's value is the name of a file or a directory.
func namesFile(flag *kong.Flag) bool {
	return strings.Contains(flag.PlaceHolder, "FILE") || strings.Contains(flag.PlaceHolder, "DIR")
}

// valued lists the flags that take a value in every command that has them.
func valued(all []completed) []string {
	takes := map[string]bool{}
	for _, c := range all {
		for _, flag := range c.flags {
			before, known := takes["--"+flag.Name]
			takes["--"+flag.Name] = !flag.IsBool() && (before || !known)
		}
	}
	var flags []string
	for name, yes := range takes {
		if yes {
			flags = append(flags, name)
		}
	}
	slices.Sort(flags)
	return flags
}

// commandWords lists each command's last word after the path to it.
func commandWords(all []completed) (paths []string) {
	for _, c := range all {
		for _, n := range c.nodes {
			paths = append(paths, quoted1(c.path+" "+n.Name))
		}
	}
	return paths
}

// quoted1 puts a text into single quotes, for bash and zsh.
func quoted1(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// values writes, as the cases of bash and zsh, what may follow a flag.
func values(w io.Writer, all []completed, words, files string) {
	for _, c := range all {
		for _, flag := range c.flags {
			at := quoted1(c.path + ":--" + flag.Name)
			switch {
			case valuesOf(flag.Value) != nil:
				fmt.Fprintf(w, "  "+words+"\n", at, strings.Join(valuesOf(flag.Value), " "))
			case namesFile(flag):
				fmt.Fprintf(w, "  "+files+"\n", at)
			}
		}
	}
}

func bashCompletion(w io.Writer, all []completed) {
	fmt.Fprintf(w, `# Completions of outboxweb for bash. Source this file, or install it as
# /usr/share/bash-completion/completions/outboxweb.
_outboxweb() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at= word words= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case $word in
    %s)
      if [[ ${COMP_WORDS[i+1]} == = ]]; then ((i++)); fi
      ((i++))
      continue ;;
    esac
    case "$at $word" in
    %s) at="${at:+$at }$word" ;;
    esac
  done
  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
  case "$at:$prev" in
`, strings.Join(valued(all), "|"), strings.Join(commandWords(all), "|"))
	values(w, all, "%s) words='%s' ;;", `%s) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;`)
	fmt.Fprintf(w, "  *:--*)\n    case $prev in %s) COMPREPLY=(); return ;; esac ;;\n  esac\n  if [[ -z $words ]]; then case \"$at\" in\n", strings.Join(valued(all), "|"))
	for _, c := range all {
		plain, flags := slices.Clone(c.words), []string{}
		for _, n := range c.nodes {
			plain = append(plain, n.Name)
		}
		for _, flag := range c.flags {
			flags = append(flags, names(flag)...)
		}
		if len(plain) == 0 {
			plain = flags
		}
		fmt.Fprintf(w, "  %s) if [[ $cur == -* ]]; then words='%s'; else words='%s'; fi ;;\n", quoted1(c.path), strings.Join(flags, " "), strings.Join(plain, " "))
	}
	fmt.Fprint(w, "  esac; fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -F _outboxweb outboxweb\n")
}

func zshCompletion(w io.Writer, all []completed) {
	fmt.Fprintf(w, `#compdef outboxweb
# Completions of outboxweb for zsh. Install this file as _outboxweb in a directory of $fpath.
_outboxweb() {
  local at= word prev=${words[CURRENT-1]} i
  local -a found
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    case $word in
    (%s) ((i++)); continue ;;
    esac
    case "$at $word" in
    (%s) at="${at:+$at }$word" ;;
    esac
  done
  if [[ ${words[CURRENT]} == --*=* ]]; then
    prev=${words[CURRENT]%%%%=*}
    compset -P '*='
  fi
  case "$at:$prev" in
`, strings.Join(valued(all), "|"), strings.Join(commandWords(all), "|"))
	values(w, all, "(%s) found=(%s) ;;", "(%s) _files; return ;;")
	fmt.Fprintf(w, "  (*:--*)\n    case $prev in (%s) return ;; esac ;;\n  esac\n  if (( ! $#found )); then case $at in\n", strings.Join(valued(all), "|"))
	for _, c := range all {
		var lines []string
		for _, word := range c.words {
			lines = append(lines, quoted1(word))
		}
		for _, n := range c.nodes {
			lines = append(lines, quoted1(n.Name+":"+n.Help))
		}
		for _, flag := range c.flags {
			for _, name := range names(flag) {
				lines = append(lines, quoted1(name+":"+flag.Help))
			}
		}
		fmt.Fprintf(w, "  (%s) found=(\n    %s\n  ) ;;\n", quoted1(c.path), strings.Join(lines, "\n    "))
	}
	fmt.Fprint(w, "  esac; fi\n  _describe outboxweb found\n}\nif [[ $funcstack[1] == _outboxweb ]]; then _outboxweb \"$@\"; else compdef _outboxweb outboxweb; fi\n")
}

func fishCompletion(w io.Writer, all []completed) {
	fmt.Fprintf(w, `# Completions of outboxweb for fish. Install this file as ~/.config/fish/completions/outboxweb.fish.
function __outboxweb_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        switch "$at $word"
            case %s
                set at (string trim -- "$at $word")
        end
    end
    test "$at" = "$argv[1]"
end
complete -c outboxweb -f
`, strings.Join(commandWords(all), " "))
	quote := func(text string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
	}
	for _, c := range all {
		at := "complete -c outboxweb -n " + quote(`__outboxweb_at "`+c.path+`"`)
		for _, word := range c.words {
			fmt.Fprintf(w, "%s -a %s\n", at, quote(word))
		}
		for _, n := range c.nodes {
			fmt.Fprintf(w, "%s -a %s -d %s\n", at, quote(n.Name), quote(n.Help))
		}
		for _, flag := range c.flags {
			takes := ""
			switch {
			case valuesOf(flag.Value) != nil:
				takes = " -x -a " + quote(strings.Join(valuesOf(flag.Value), " "))
			case namesFile(flag):
				takes = " -r -F"
			case !flag.IsBool():
				takes = " -x"
			}
			for _, name := range names(flag) {
				fmt.Fprintf(w, "%s -l %s%s -d %s\n", at, strings.TrimPrefix(name, "--"), takes, quote(flag.Help))
			}
		}
	}
}
