package alerts

import (
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// Settings are the value of the configuration's key alerts. The zero value has no receivers, and
// sends nothing.
type Settings struct {
	Rules     []AlertRule
	Receivers []Receiver
}

// Receiver is where messages are sent.
type Receiver struct {
	Name  string
	Kind  string // webhook, slack, ntfy or email
	Shown string // the URL without secrets

	url     outbound.URL
	http    outbound.HTTPSettings
	timeout time.Duration
	from    string
	to      []string
}

// Bounds and defaults of the configuration.
const (
	defaultTimeout = 10 * time.Second
	longestTimeout = 20 * time.Second // well below the lease
	longestFor     = 7 * 24 * time.Hour
	mostOver       = 1_000_000_000
)

// schemes are the schemes of receivers' URLs, with their kinds.
var schemes = map[string]string{
	"https": "webhook", "http": "webhook",
	"slack+https": "slack", "slack+http": "slack",
	"ntfy+https": "ntfy", "ntfy+http": "ntfy",
	"smtp": "email", "smtps": "email",
}

const schemeExamples = "https://host/path, slack+https://host/path, ntfy+https://host/topic, smtp://host:587 or smtps://host:465"

// Parse parses the value of the key alerts. Variables in texts are looked up with getenv. An error
// is an *event.Refusal of kind event.ErrInvalid with its line, whose sentence names the key and no
// secret.
func Parse(node *yaml.Node, getenv func(string) (string, bool)) (Settings, error) {
	r := &reader{Reader: outbound.Reader{Getenv: getenv}, node: node}
	fields := r.Fields(node, "alerts", "to", "receivers", "rules")
	for _, e := range r.Entries(fields["receivers"].Value, "alerts.receivers") {
		r.Check(e, CheckAlertName("receiver", e.Name))
		r.receiver(e)
	}
	to := r.names(fields["to"], nil)
	if r.Err == nil && len(r.settings.Receivers) == 0 {
		r.Fail(node, "alerts", "there is no receiver; name one: to: [slack+https://hooks.slack.com/services/…]")
	}
	r.rules(fields["rules"], to)
	if r.Err != nil {
		return Settings{}, r.Err
	}
	return r.settings, nil
}

type reader struct {
	outbound.Reader
	node     *yaml.Node
	settings Settings
}

func (r *reader) receiver(e outbound.Entry) {
	fields := r.Fields(e.Value, e.Path, append([]string{"url", "timeout", "from", "to"}, outbound.HTTPKeys...)...)
	at := fields["url"]
	if r.Err == nil && at.Value == nil {
		r.Fail(e.Key, e.Path, "url is missing; use %s", schemeExamples)
	}
	rec := r.address(e.Name, at, fields)
	rec.timeout = r.Pause(fields["timeout"], defaultTimeout, longestTimeout)
	if rec.Kind == "email" {
		r.email(e, fields, &rec)
	} else {
		for _, name := range []string{"from", "to"} {
			if field, given := fields[name]; given {
				r.Fail(field.Key, e.Path, "%s is a key of e-mail, and this receiver is not one", name)
			}
		}
	}
	r.settings.Receivers = append(r.settings.Receivers, rec)
}

// address reads a receiver's URL and the settings of its requests.
func (r *reader) address(name string, at outbound.Entry, fields map[string]outbound.Entry) Receiver {
	rec := Receiver{Name: name, timeout: defaultTimeout}
	rec.url = r.URL(at, func(scheme string) bool { return schemes[scheme] != "" }, schemeExamples)
	if r.Err != nil {
		return rec
	}
	rec.Kind = schemes[rec.url.Scheme]
	if rec.http = r.HTTP(at, rec.url, fields); rec.Kind != "webhook" && rec.http.Signers != nil {
		r.Fail(fields["secret"].Key, at.Path, "only webhooks are signed; remove secret")
	}
	rec.Shown = r.Shown(at, rec.url)
	if rec.Kind == "slack" || rec.Kind == "ntfy" { // their paths are secrets
		rec.Shown = rec.url.Scheme + "://" + rec.url.Authority + "/…"
	}
	return rec
}

func (r *reader) email(e outbound.Entry, fields map[string]outbound.Entry, rec *Receiver) {
	rec.from = r.checkMailbox(fields["from"], r.Text(fields["from"]))
	if field := fields["to"]; r.Err == nil && (fields["from"].Value == nil || field.Value == nil) {
		r.Fail(e.Key, e.Path, "e-mail needs from: ADDRESS and to: [ADDRESS]")
	}
	for _, address := range r.Texts(fields["to"], "[oncall@example.com]") {
		rec.to = append(rec.to, r.checkMailbox(fields["to"], address))
	}
	if len(rec.http.Headers) > 0 {
		r.Fail(fields["headers"].Key, e.Path, "e-mail takes no headers; remove them")
	}
}

func (r *reader) checkMailbox(field outbound.Entry, text string) string {
	at, err := mail.ParseAddress(text)
	if r.Err == nil && field.Value != nil && err != nil {
		r.Fail(field.Value, field.Path, "%q is not an e-mail address", outbound.Shorten(text))
	}
	if err != nil {
		return ""
	}
	return at.Address
}

// names reads a list of receivers: names, or URLs of receivers without settings of their own.
func (r *reader) names(field outbound.Entry, standard []string) []string {
	if field.Value == nil {
		return standard
	}
	var names []string
	list := r.Texts(field, "[ops, slack+https://hooks.slack.com/services/…]")
	for i, text := range list {
		if r.Err != nil {
			return nil
		}
		at := outbound.Entry{Path: field.Path, Key: field.Key, Value: field.Value.Content[i]}
		name := text
		switch {
		case strings.Contains(text, ":") || strings.Contains(text, "$"):
			rec := r.address("", at, nil)
			if rec.Kind == "email" {
				r.Fail(at.Value, at.Path, "e-mail needs from and to; describe it under receivers, and use its name here")
				return nil
			}
			name = r.add(rec)
		case r.find(func(known Receiver) bool { return known.Name == name }) < 0:
			r.Fail(at.Value, at.Path, "there is no receiver %q under receivers; name one, or write its URL: %s", outbound.Shorten(text), schemeExamples)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (r *reader) find(is func(Receiver) bool) int { return slices.IndexFunc(r.settings.Receivers, is) }

// add adds a receiver that has no name, under its kind, and returns the name. The same URL is one
// receiver.
func (r *reader) add(rec Receiver) string {
	if i := r.find(func(known Receiver) bool { return known.url.Whole == rec.url.Whole }); i >= 0 {
		return r.settings.Receivers[i].Name
	}
	rec.Name = rec.Kind
	for n := 2; r.find(func(known Receiver) bool { return known.Name == rec.Name }) >= 0; n++ {
		rec.Name = rec.Kind + "-" + strconv.Itoa(n)
	}
	r.settings.Receivers = append(r.settings.Receivers, rec)
	return rec.Name
}

// rules reads the rules, which change the standard ones or add to them.
func (r *reader) rules(field outbound.Entry, to []string) {
	all := AlertRules()
	for i := range all {
		all[i].To = to
	}
	standard := slices.Clone(all)
	for _, e := range r.Entries(field.Value, "alerts.rules") {
		r.Check(e, CheckAlertName("rule", e.Name))
		if e.Name == AllAlerts {
			r.Fail(e.Key, e.Path, "all means every rule, in a mute; use another name")
		}
		i := slices.IndexFunc(all, func(rule AlertRule) bool { return rule.Name == e.Name })
		if e.Value.ShortTag() == "!!bool" || e.Value.Value == "off" {
			if r.Err == nil && (i < 0 || e.Value.Value != "off" && e.Value.Value != "false") {
				r.Fail(e.Value, e.Path, "must be off, for one of the rules that apply without configuration, or a mapping")
				return
			}
			all = slices.Delete(all, i, i+1)
			continue
		}
		rule := r.rule(e, standard)
		if r.Err != nil {
			return
		}
		if i >= 0 {
			all[i] = rule
		} else {
			all = append(all, rule)
		}
	}
	for _, rule := range all {
		if r.Err == nil && len(rule.To) == 0 {
			r.Fail(r.node, "alerts", "rule %s has no receiver; name the receivers of all rules with to: [NAME], or set the rule off", rule.Name)
		}
	}
	r.settings.Rules = all
}

func (r *reader) rule(e outbound.Entry, standard []AlertRule) AlertRule {
	fields := r.Fields(e.Value, e.Path, "what", "over", "for", "to", "urgent")
	what := e.Name
	if fields["what"].Value != nil {
		what = r.Text(fields["what"])
	}
	i := slices.IndexFunc(standard, func(rule AlertRule) bool { return string(rule.What) == what })
	if i < 0 {
		var known []string
		for _, rule := range standard {
			known = append(known, string(rule.What))
		}
		r.Fail(e.Key, e.Path, "what must be %s", event.OrList(known))
		return AlertRule{}
	}
	rule := standard[i]
	rule.Name = e.Name
	rule.To = r.names(fields["to"], rule.To)
	if over := fields["over"]; over.Value != nil {
		switch {
		case rule.What == AlertOldest:
			rule.OverAge = r.Pause(over, rule.OverAge, longestFor)
		case rule.What.Counts():
			rule.Over = r.Number(over, rule.Over, 0, mostOver)
		default:
			r.Fail(over.Key, e.Path, "%s has no threshold; remove over", rule.What)
		}
	}
	if hold := fields["for"]; hold.Value != nil {
		if d, err := time.ParseDuration(hold.Value.Value); err == nil && d == 0 {
			rule.For = 0
		} else {
			rule.For = r.Pause(hold, rule.For, longestFor)
		}
	}
	if fields["urgent"].Value != nil {
		rule.Urgent = r.Flag(fields["urgent"])
	}
	return rule
}

func (s Settings) receiver(name string) (Receiver, bool) {
	i := slices.IndexFunc(s.Receivers, func(r Receiver) bool { return r.Name == name })
	if i < 0 {
		return Receiver{}, false
	}
	return s.Receivers[i], true
}

func (s Settings) hasRule(name string) bool {
	return slices.ContainsFunc(s.Rules, func(r AlertRule) bool { return r.Name == name })
}
