package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/mattn/go-isatty"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// confirming performs an action with the flags --reason and --confirm. If the action requires a
// phrase and none was given, it prompts once when attached to a terminal; otherwise it is refused
// with the flag to use.
func (a *app) confirming(reason, confirm string, act func(outbox.Command) error) error {
	o := command(reason)
	o.Confirm = confirm
	err := act(o)
	refusal, refused := errors.AsType[*outbox.Refusal](err)
	if refused && refusal.Confirm != "" && o.Confirm == "" && a.atTerminal() {
		fmt.Fprintln(a.err, refusal)
		line := bufio.NewScanner(a.in)
		line.Scan() // at the end of the input the phrase is empty
		o.Confirm = line.Text()
		err = act(o)
		refusal, refused = errors.AsType[*outbox.Refusal](err)
	}
	if refused && refusal.Confirm != "" {
		return usagef("%s; to confirm it, add --confirm %s", refusal.Detail, outbox.ShellWord(refusal.Confirm))
	}
	return err
}

// atTerminal reports whether the command can prompt.
func (a *app) atTerminal() bool {
	in, ok := a.in.(*os.File)
	return ok && isatty.IsTerminal(in.Fd())
}
