package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/tokens"
	"github.com/outboxweb/outboxweb/web/templates/system"
)

// tokenCmd creates, lists and revokes API tokens.
type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Create a token and print it; it is shown only once."`
	Hash   tokenHashCmd   `cmd:"" help:"Make a token without a database, and print its line for the file of serve --tokens-file."`
	List   tokenListCmd   `cmd:"" help:"List tokens, the valid ones first."`
	kong.Plugins
}

type tokenCreateCmd struct {
	Role    string   `required:"" placeholder:"ROLE" values:"role" help:"The token's role: ${roles}."`
	Expires daysFlag `default:"90d" placeholder:"DURATION" help:"How long the token is valid, such as 90d or 720h; at most two years."`
	Note    string   `placeholder:"TEXT" help:"What the token is for; shown in audit records."`
	Reason  string   `placeholder:"TEXT" help:"The reason, for the audit log."`
	JSON    bool     `name:"json" help:"Print JSON: the token and its details."`
}

func (c *tokenCreateCmd) check() error {
	if _, err := operator.ParseRole(c.Role); err != nil {
		return asUsage("--role", err)
	}
	return nil
}

// Run makes the token.
func (c *tokenCreateCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	text, hash := auth.NewToken()
	made, err := st.Tokens.CreateToken(ctx, command(c.Reason), hash, operator.Role(c.Role), c.Note, time.Now().Add(time.Duration(c.Expires)))
	if refusal, ok := err.(*event.Refusal); ok && (refusal.Field == "note" || refusal.Field == "expires") {
		return asUsage("--"+refusal.Field, err)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "token %d (%s) is valid until %s; it is shown only once\n", made.ID, made.Role, made.ExpiresAt.Format(time.DateOnly))
	return jsonFlag{c.JSON}.print(a, struct {
		Text string `json:"token"`
		operator.Token
	}{text, made}, "%s", text)
}

type tokenHashCmd struct {
	Name  string `arg:"" help:"The token's name, which audit records show."`
	Role  string `required:"" placeholder:"ROLE" values:"role" help:"The token's role: ${roles}."`
	Stdin bool   `help:"Hash the token on standard input instead of making one."`
	JSON  bool   `name:"json" help:"Print JSON: the token and the line."`
}

// Run prints the line on stdout, and the text of a new token on stderr.
func (c *tokenHashCmd) Run(a *app) error {
	text, hash := auth.NewToken()
	if c.Stdin {
		given, err := io.ReadAll(io.LimitReader(a.in, 1<<10))
		if err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
		if text = strings.TrimSpace(string(given)); !auth.WellFormed(text) {
			return usagef("--stdin: standard input has no API token, which begins with obw_ and has 43 more characters")
		}
		hash = auth.HashToken(text)
	}
	line := c.Name + " " + c.Role + " " + hash
	if _, _, err := tokens.ParseLine(line); err != nil {
		return usagef("%s", refusalText(err))
	}
	if !c.Stdin && !c.JSON {
		fmt.Fprintf(a.err, "the token of this line is %s; it is shown only once\n", text)
	}
	return jsonFlag{c.JSON}.print(a, struct {
		Text string `json:"token"`
		Line string `json:"line"`
	}{text, line}, "%s", line)
}

type tokenListCmd struct{ jsonFlag }

// Run lists the tokens.
func (c *tokenListCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	all, err := st.Tokens.List(ctx)
	if err != nil {
		return err
	}
	return printList(a, c.jsonFlag, "tokens", all, system.TokenColumns(shownNow()))
}
