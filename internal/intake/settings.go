package intake

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

// Settings are the value of the configuration's key sources. The zero value has none.
type Settings struct{ Sources []Source }

// Definition is a source as a person or a program defines it. URL is required.
type Definition struct {
	URL          string              // sqlite:PATH, or postgres://…
	Table        string              // TABLE, or SCHEMA.TABLE; empty means outboxweb_intake
	Layout       string              // of the table: outboxweb, or debezium; empty means outboxweb, unless there are Columns
	Columns      map[string][]string // by name of the event's field; several columns are joined with colons
	BatchSize    int                 // rows read at a time; 0 means 1,000
	PollInterval time.Duration       // 0 means a second
	KeepMoved    time.Duration       // how long events of moved rows are kept beside the table; 0 means not at all
}

// Source is a checked Definition.
type Source struct {
	Name  string
	Place string // the URL without secrets
	Table string

	layout   layout
	path     string          // of a SQLite file
	postgres *pgx.ConnConfig // nil for SQLite
	batch    int
	poll     time.Duration
	keep     time.Duration
}

// Bounds and defaults of a source.
const (
	defaultBatch = 1000
	maxBatch     = 10_000
	defaultPoll  = time.Second
	longestPoll  = time.Hour
	longestKeep  = 7 * 24 * time.Hour
)

// Source checks the definition of a source. An error is an *event.Refusal of kind event.ErrInvalid
// whose Field is the key at fault, and whose sentence has no secret.
func (d Definition) Source(name string) (Source, error) {
	if err := event.CheckName("source", name); err != nil {
		return Source{}, err
	}
	s := Source{Name: name, Table: d.Table, batch: d.BatchSize, poll: d.PollInterval, keep: max(0, d.KeepMoved)}
	switch {
	case s.batch <= 0:
		s.batch = defaultBatch
	case s.batch > maxBatch:
		return s, event.Invalid("batch_size", "BatchSize is %d; give at most %d", s.batch, maxBatch)
	}
	if s.poll <= 0 {
		s.poll = defaultPoll
	}
	if err := s.locate(d.URL); err != nil {
		return s, err
	}
	var err error
	s.layout, err = d.layout(s.postgres != nil)
	if s.Table == "" {
		s.Table = ownTable
	}
	if err == nil {
		err = checkTable(s.Table)
	}
	return s, err
}

// locate reads the URL.
func (s *Source) locate(url string) error {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		if path == "" || strings.Contains(path, ":memory:") {
			return event.Invalid("url", "the path of the SQLite file is missing; use sqlite:PATH")
		}
		s.path, s.Place = path, "sqlite:"+filepath.Clean(path)
		return nil
	}
	if !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://") {
		return event.Invalid("url", "a source is a database: use %s", schemeExamples)
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return event.Invalid("url", "it is not a PostgreSQL URL, such as postgres://USER@HOST:5432/DATABASE")
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "outboxweb intake " + s.Name
	}
	if !strings.Contains(url, "connect_timeout=") {
		config.ConnectTimeout = 5 * time.Second
	}
	s.postgres = config
	s.Place = "postgres://" + config.User + "@" + config.Host + "/" + config.Database
	if schema := config.RuntimeParams["search_path"]; schema != "" {
		s.Place += "?search_path=" + schema
	}
	return nil
}

const schemeExamples = "sqlite:PATH or postgres://USER@HOST/DATABASE"

// Parse parses the value of the key sources. Variables in URLs are looked up with getenv. An error is
// an *event.Refusal of kind event.ErrInvalid with its line, whose sentence names the key and no
// secret.
func Parse(node *yaml.Node, getenv func(string) (string, bool)) (Settings, error) {
	r := &reader{outbound.Reader{Getenv: getenv}}
	var settings Settings
	for _, e := range r.Entries(node, "sources") {
		s := r.source(e)
		settings.Sources = append(settings.Sources, s)
	}
	if r.Err == nil && len(settings.Sources) == 0 {
		r.Fail(node, "sources", "there is no source; name one: shop: {url: %q}", "postgres://USER@HOST/DATABASE")
	}
	if r.Err != nil {
		return Settings{}, r.Err
	}
	return settings, nil
}

type reader struct{ outbound.Reader }

func (r *reader) source(e outbound.Entry) Source {
	fields := r.Fields(e.Value, e.Path, "url", "table", "layout", "columns", "batch_size", "poll_interval", "keep_moved")
	if r.Err == nil && fields["url"].Value == nil {
		r.Fail(e.Key, e.Path, "url is missing; use %s", schemeExamples)
	}
	d := Definition{Table: r.Text(fields["table"]), Layout: r.Text(fields["layout"]), Columns: r.columns(fields["columns"]),
		BatchSize: int(r.Number(fields["batch_size"], defaultBatch, 1, maxBatch)), PollInterval: r.Pause(fields["poll_interval"], defaultPoll, longestPoll), KeepMoved: r.Pause(fields["keep_moved"], 0, longestKeep)}
	u := r.URL(fields["url"], func(scheme string) bool { return slices.Contains([]string{"sqlite", "postgres", "postgresql"}, scheme) }, schemeExamples)
	d.URL = u.Whole
	if u.Scheme == "sqlite" {
		d.URL = "sqlite:" + u.Path
	}
	if r.Err != nil {
		return Source{}
	}
	s, err := d.Source(e.Name)
	if refusal, ok := err.(*event.Refusal); ok {
		at := e
		if field, given := fields[refusal.Field]; given {
			at = field
		}
		r.Fail(at.Key, at.Path, "%s", refusal.Detail)
	}
	return s
}

// columns reads a mapping from fields of events to a column, or a list of columns.
func (r *reader) columns(e outbound.Entry) map[string][]string {
	if e.Value == nil {
		return nil
	}
	all := map[string][]string{}
	for _, c := range r.Entries(e.Value, e.Path) {
		if c.Value.Kind == yaml.SequenceNode {
			all[c.Name] = r.Texts(c, "[aggregatetype, aggregateid]")
			continue
		}
		all[c.Name] = []string{r.Text(c)}
	}
	return all
}
