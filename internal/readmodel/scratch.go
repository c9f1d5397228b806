package readmodel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Scratch is a private database with empty copies of the tables of some projections, for
// replaying events without touching live rows: a temporary SQLite file, or temporary tables on
// one PostgreSQL connection. Rows that do not fit into its cache are on disk, so that its
// memory does not grow with the replay. It belongs to one goroutine.
//
// An event.ErrBusy from any method means that the connection, and the rows with it, may be
// gone: Close it and open another.
type Scratch struct {
	*sqldb.Private
	model       *Database
	projections []Projection

	// OneByOne sends the statements of a replay one by one, where queries read their results.
	OneByOne bool

	t       *sqldb.Tx // of the running replay; nil outside one
	gather  gather
	columns map[string][]string // the copied ones, by table
	keys    map[string][]string // the copy order by table, on PostgreSQL
	dead    int64               // events whose rows may still take up space
	written bool                // there may be rows
	grown   int64               // events and copied rows since the tables were empty
	known   int64               // grown when the tables were last analysed
}

// gather is statements that wait, on PostgreSQL, to be sent together.
type gather struct {
	on     bool
	queue  sqldb.Batch
	weight int   // bytes of arguments
	first  int   // index of the first event in it
	ends   []int // number of statements at the end of each event
}

// A gather is sent when it has this many statements or bytes.
const (
	gatherStatements = 2 * sqldb.Journey
	gatherBytes      = 1 << 20
)

// OpenScratch opens a Scratch. A wrong schema statement is a *SchemaError.
func (d *Database) OpenScratch(ctx context.Context, projections []Projection) (*Scratch, error) {
	p, err := d.OpenPrivate(ctx)
	if err != nil {
		return nil, err
	}
	c := &Scratch{Private: p, model: d, projections: projections, columns: make(map[string][]string), keys: make(map[string][]string)}
	if err := c.createTables(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Scratch) createTables() error {
	return c.within(sqldb.BeginPlain, func(t *sqldb.Tx) error {
		for _, p := range c.projections {
			for i, statement := range p.Schema {
				if t.Dialect().TempTables && createsFunction(statement) {
					continue // the live tables are used
				}
				if err := t.Define(statement); err != nil {
					return &SchemaError{Projection: p.Name, Statement: i, Err: err}
				}
			}
		}
		return nil
	})
}

func createsFunction(statement string) bool {
	words := strings.Fields(strings.ToLower(statement))
	return len(words) > 3 && (words[1] == "function" || words[1] == "or" && words[3] == "function")
}

// Exec runs one statement of a projection. ctx carries its deadline, if any; a statement that
// exceeds it is context.DeadlineExceeded. Within Replay, on PostgreSQL, it may queue the
// statement, and then reports no error.
func (c *Scratch) Exec(ctx context.Context, query string, args []any) error {
	if c.model.Dialect.Typed {
		args = asTexts(args)
	}
	if c.gather.on {
		c.gather.queue.Exec(nil, query, args...)
		for _, arg := range args {
			if text, ok := arg.(string); ok {
				c.gather.weight += len(text)
			}
		}
		return nil
	}
	if c.t == nil {
		return c.within(sqldb.BeginReplay, func(t *sqldb.Tx) error {
			_, err := t.ExecContext(ctx, query, args...)
			return err
		})
	}
	_, err := c.t.ExecContext(ctx, query, args...)
	return err
}

// Query runs one select of a projection and calls each with the cells of every row; see sqldb.Cells.
// Within Replay, OneByOne must be set.
func (c *Scratch) Query(ctx context.Context, query string, args []any, each func(cells []any) error) error {
	if c.gather.on {
		return errGathering
	}
	if c.t != nil {
		return eachCells(ctx, c.t, query, args, each)
	}
	return c.within(sqldb.BeginReplay, func(t *sqldb.Tx) error { return eachCells(ctx, t, query, args, each) })
}

// Replay applies n events, many per transaction: apply writes event i through Exec, and may be
// called again for an event whose transaction was rolled back. When an event fails, the events
// before it stay applied and it leaves nothing; done is its index and err its error from apply.
// When ctx ends, which is checked between events, err is ctx.Err() and done is the number of
// applied events.
func (c *Scratch) Replay(ctx context.Context, n int, apply func(i int) error) (done int, err error) {
	suspect := -1   // an event that failed together with others
	var fault error // its error, if known already
	for done < n {
		if done == suspect && fault != nil {
			return done, fault
		}
		end := min(n, done+replayTogether)
		switch {
		case suspect == done:
			end = done + 1
		case suspect > done:
			end = min(end, suspect)
		}
		failed, err := c.replayRun(ctx, done, end, apply)
		switch {
		case err == nil:
			c.grown += int64(end - done)
			done = end
			if err := c.analyze(); err != nil {
				return done, err
			}
		case ctx.Err() != nil:
			return done, ctx.Err()
		case errors.Is(err, event.ErrBusy) || end-done == 1:
			return done, err
		case failed == end: // a constraint checked at commit
			suspect, fault = (done+end)/2, nil
		case c.model.Dialect.Pipelines:
			suspect, fault = failed, nil
		default:
			suspect, fault = failed, err
		}
	}
	return done, nil
}

// replayTogether is the maximum number of events in a transaction. PostgreSQL keeps every
// version of a row until its transaction ends, and scans them on each further change of the
// row.
const replayTogether = 256

// replayRun applies the events from first up to, but not including, end in one transaction.
// When one fails nothing of them remains and its index is returned, or end when it is not known
// which failed.
func (c *Scratch) replayRun(ctx context.Context, first, end int, apply func(i int) error) (failed int, err error) {
	c.gather = gather{on: c.model.Dialect.Pipelines && end-first > 1 && !c.OneByOne, first: first, queue: c.gather.queue}
	failed = end
	err = c.within(sqldb.BeginReplay, func(t *sqldb.Tx) error {
		c.t = t
		for i := first; i < end; i++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := apply(i); err != nil {
				failed = i
				return err
			}
			if err := t.Err(); err != nil {
				failed = i
				return err
			}
			if at, err := c.sendFull(i); err != nil {
				failed = at
				return err
			}
		}
		at, err := c.send()
		if err != nil {
			failed = at
		}
		return err
	})
	c.t, c.gather.on = nil, false
	c.gather.queue.Reset()
	if err == nil {
		c.dead += int64(end - first)
	}
	return failed, err
}

// sendFull records the end of event i and sends the gathered statements if they reach a limit.
func (c *Scratch) sendFull(i int) (failed int, err error) {
	g := &c.gather
	if !g.on {
		return 0, nil
	}
	g.ends = append(g.ends, g.queue.Len())
	if g.queue.Len() < gatherStatements && g.weight < gatherBytes {
		return 0, nil
	}
	failed, err = c.send()
	g.first, g.ends, g.weight = i+1, g.ends[:0], 0
	return failed, err
}

// send sends the gathered statements and returns the index of the event that failed.
func (c *Scratch) send() (failed int, err error) {
	g := &c.gather
	done, err := c.t.Run(&g.queue)
	if err == nil {
		return 0, nil
	}
	return g.first + min(sort.SearchInts(g.ends, done+1), max(len(g.ends)-1, 0)), err
}

// within runs fn in one transaction of the Scratch.
func (c *Scratch) within(begin sqldb.Begin, fn func(*sqldb.Tx) error) error {
	c.written = c.written || begin != sqldb.BeginPlain
	return c.Private.Within(begin, fn)
}

// Clear deletes the rows of one campaign, or of all when campaign is empty, from the named
// tables, or from all when none is named. It fires no triggers.
func (c *Scratch) Clear(ctx context.Context, campaign string, tables ...string) error {
	if !c.written {
		return nil
	}
	if len(tables) == 0 {
		tables = c.allTables()
	}
	whole := campaign == "" && len(tables) == len(c.allTables())
	err := c.within(sqldb.BeginPlain, func(t *sqldb.Tx) error {
		if campaign == "" && t.Dialect().TempTables && c.dead > tidyAfter {
			return t.Define("truncate " + quoteNames(tables))
		}
		return quietly(ctx, t, "", tables, func() error {
			for _, name := range slices.Backward(tables) {
				if err := clearTable(t, name, campaign); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("empty the scratch database: %w", err)
	}
	if whole {
		c.written, c.grown, c.known = false, 0, 0
	}
	if c.dead <= tidyAfter {
		return nil
	}
	c.dead = 0
	if c.model.Dialect.TempTables && campaign != "" {
		c.grown, c.known = 0, 0
		err = c.Define("vacuum " + quoteNames(c.allTables()))
	}
	return err
}

// analyzeAfter is how many events are replayed before the tables are first analysed.
const analyzeAfter = 2 * replayTogether

// analyze gives PostgreSQL statistics of the tables when they have doubled: autovacuum does not process
// temporary tables, and plans made while a table was empty, which the server keeps, read a whole campaign
// where an index finds the row.
func (c *Scratch) analyze() error {
	if !c.model.Dialect.TempTables || c.grown < max(analyzeAfter, 2*c.known) {
		return nil
	}
	c.known = c.grown
	return c.within(sqldb.BeginPlain, func(t *sqldb.Tx) error { return t.Define("analyze " + quoteNames(c.allTables())) })
}

// tidyAfter is how many events are replayed before a vacuum on PostgreSQL, where autovacuum
// does not process temporary tables.
const tidyAfter = 20_000

func clearTable(t *sqldb.Tx, name, campaign string) error {
	if campaign == "" {
		_, err := t.Exec("delete from " + QuoteName(name))
		return err
	}
	_, err := t.Exec("delete from "+QuoteName(name)+" where campaign_id = $1", campaign)
	return err
}

func (c *Scratch) allTables() []string {
	var all []string
	for _, p := range c.projections {
		all = append(all, p.Tables...)
	}
	return all
}

// QuoteName quotes a name for SQL.
func QuoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoteNames(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = QuoteName(name)
	}
	return strings.Join(quoted, ", ")
}

// qualified is a table's name with its schema, or without one when schema is empty.
func qualified(schema, table string) string {
	if schema == "" {
		return QuoteName(table)
	}
	return QuoteName(schema) + "." + QuoteName(table)
}
