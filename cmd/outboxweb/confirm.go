package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/mattn/go-isatty"

	"outboxweb/internal/outbox"
)

// confirming does an action with what its flags --reason and --confirm said. One that
// wants a phrase and was given none asks for it where somebody sits at a terminal,
// once; elsewhere it is refused with the flag that gives it.
func (a *app) confirming(reason, confirm string, act func(outbox.Command) error) error {
	o := command(reason)
	o.Confirm = confirm
	err := act(o)
	refusal, refused := errors.AsType[*outbox.Refusal](err)
	if refused && refusal.Confirm != "" && o.Confirm == "" && a.atTerminal() {
		fmt.Fprintln(a.err, refusal)
		line := bufio.NewScanner(a.in)
		line.Scan() // the end of the input is no phrase
		o.Confirm = line.Text()
		err = act(o)
		refusal, refused = errors.AsType[*outbox.Refusal](err)
	}
	if refused && refusal.Confirm != "" {
		return usagef("%s; to confirm it, add --confirm %q", refusal.Detail, refusal.Confirm)
	}
	return err
}

// atTerminal reports whether somebody can be asked.
func (a *app) atTerminal() bool {
	in, ok := a.in.(*os.File)
	return ok && isatty.IsTerminal(in.Fd())
}
