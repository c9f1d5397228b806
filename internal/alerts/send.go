package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Send sends a message to the receiver, and returns within its timeout.
func (r Receiver) Send(ctx context.Context, m AlertMessage, version string, now time.Time) error {
	if r.Kind == "email" {
		return r.mail(ctx, m, now)
	}
	_, url, _ := strings.Cut(r.url.Whole, "+")
	if r.Kind == "webhook" {
		url = r.url.Whole
	}
	client, err := outbound.NewClient("receiver "+r.Name, url, r.http, r.timeout, version)
	if err != nil {
		return err
	}
	defer client.Close()
	var content any = m
	switch r.Kind {
	case "slack":
		content = map[string]any{"text": slackText(m, now), "blocks": []any{slackSection(m, now)}}
	case "ntfy":
		return client.Post(ctx, m.ID, "text/plain; charset=utf-8", []byte(plainText(m, now)), ntfyHeaders(m))
	}
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return client.Post(ctx, m.ID, "application/json", body, nil)
}

// icon begins a title where there is no other sign of the kind.
func icon(m AlertMessage) string {
	switch {
	case m.Kind == AlertResolved:
		return "✅"
	case m.Urgent:
		return "🚨"
	case m.Kind == AlertTest || m.Kind == AlertSummary:
		return "ℹ️"
	}
	return "⚠️"
}

// plainText is the message without its title.
func plainText(m AlertMessage, now time.Time) string {
	lines := m.Lines(now)
	if m.Error != "" {
		lines = append(lines, "", m.Error)
	}
	return strings.Join(lines, "\n")
}

// slackEscape makes a text of any origin harmless in a chat: no markup, no link and no mention.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "@\u200b", "`", "'", "*", "∗")

func slackText(m AlertMessage, now time.Time) string {
	text := fmt.Sprintf("%s *%s*", icon(m), slackEscape.Replace(m.Title))
	for _, line := range m.Lines(now) {
		if !strings.HasPrefix(line, "Runbook: ") && !strings.HasPrefix(line, "Console: ") {
			line = slackEscape.Replace(line)
		}
		text += "\n" + line
	}
	if m.Error != "" {
		text += "\n```\n" + slackEscape.Replace(m.Error) + "\n```"
	}
	return text
}

// slackSection is the message as a block: the title links to the console, and each line is a field.
// Slack shows it instead of the text, and refuses a block with more than 3,000 characters.
func slackSection(m AlertMessage, now time.Time) map[string]any {
	mark := func(text string) map[string]string { return map[string]string{"type": "mrkdwn", "text": text} }
	title := sqldb.Clip(slackEscape.Replace(oneLine(m.Title)), 800)
	if m.ConsoleURL != "" {
		title = "<" + m.ConsoleURL + "|" + title + ">"
	}
	text, list, fields := icon(m)+" *"+title+"*", "", []any{}
	for _, line := range m.Lines(now) {
		switch name, value, found := strings.Cut(line, ": "); {
		case strings.HasPrefix(line, "- ") || !found:
			list += "\n" + slackEscape.Replace(line)
		case name == "Runbook":
			fields = append(fields, mark("<"+value+"|Runbook>"))
		case name != "Console":
			fields = append(fields, mark("*"+name+"*\n"+sqldb.Clip(slackEscape.Replace(value), 500)))
		}
	}
	if text += sqldb.Clip(list, 1500); m.Error != "" {
		text += "\n```\n" + sqldb.Clip(slackEscape.Replace(m.Error), 1500) + "\n```"
	}
	section := map[string]any{"type": "section", "text": mark(text)}
	if len(fields) > 0 {
		section["fields"] = fields
	}
	return section
}

func ntfyHeaders(m AlertMessage) map[string]string {
	priority, tags := "default", "warning"
	switch {
	case m.Kind == AlertResolved:
		priority, tags = "low", "white_check_mark"
	case m.Urgent:
		priority, tags = "urgent", "rotating_light"
	case m.Kind == AlertTest || m.Kind == AlertSummary:
		tags = "information_source"
	}
	headers := map[string]string{"Title": mime.QEncoding.Encode("utf-8", oneLine(m.Title)), "Priority": priority, "Tags": tags}
	if m.ConsoleURL != "" {
		headers["Click"] = m.ConsoleURL
	}
	return headers
}

// oneLine makes a text fit for a header.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
