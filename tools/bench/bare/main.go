// Command bare runs outboxweb bench, and measures beside each drain and batch of appends the bare driver on a backlog of the same
// size: what the storage allows without leases, checks and recovery. The ratio is the cost of the guarantees.
//
//	go run ./bare -outboxweb ../../bin/outboxweb -dir ../..
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	b := &bench{}
	flag.StringVar(&b.program, "outboxweb", "bin/outboxweb", "the `program` to measure")
	flag.StringVar(&b.dir, "dir", ".", "the `directory` for temporary SQLite files")
	flag.StringVar(&b.server, "db", "", "measure in schemas of this postgres:// `URL` instead")
	flag.StringVar(&b.scale, "scale", "1", "multiply every size by this")
	flag.StringVar(&b.only, "only", "", "run only benchmarks whose name contains this")
	flag.Parse()
	err := b.run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	program, dir, server, scale, only string
}

// measured is one line of the program's own result.
type measured struct {
	Name            string  `json:"name"`
	Events          int     `json:"events"`
	EventsPerSecond float64 `json:"events_per_second"`
}

func (b *bench) run(ctx context.Context, out io.Writer) error {
	args := []string{"bench", "--json", "--scale", b.scale, "--only", b.only}
	if b.server != "" {
		args = append(args, "--journal-db", b.server)
	} else {
		args = append(args, "--dir", b.dir)
	}
	var text bytes.Buffer
	if err := b.outboxweb(ctx, nil, nil, &text, args...); err != nil {
		return err
	}
	var result struct{ Results []measured }
	if err := json.Unmarshal(text.Bytes(), &result); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "MEASUREMENT\tEVENTS/S\tBARE DRIVER\tRATIO\t")
	for _, m := range result.Results {
		bare, ratio := "", ""
		if strings.HasPrefix(m.Name, "drain_") || strings.HasPrefix(m.Name, "append_batches") {
			fmt.Fprintln(os.Stderr, "measuring the bare driver beside", m.Name)
			took, err := b.measure(ctx, m)
			if err != nil {
				return fmt.Errorf("bare driver beside %s: %w", m.Name, err)
			}
			rate := float64(m.Events) / took.Seconds()
			bare, ratio = fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f", m.EventsPerSecond/rate)
		}
		fmt.Fprintf(table, "%s\t%.0f\t%s\t%s\t\n", m.Name, m.EventsPerSecond, bare, ratio)
	}
	return table.Flush()
}

// outboxweb runs the program on databases, or the ones that args name.
func (b *bench) outboxweb(ctx context.Context, settings []string, in io.Reader, out io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, b.program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), settings...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	return cmd.Run()
}

// measure does what a measurement did with the bare driver, on new databases: it drains their backlog, or appends.
func (b *bench) measure(ctx context.Context, m measured) (took time.Duration, err error) {
	l, loops, run := backlog{1, m.Events, strings.Contains(m.Name, "_random")}, 2, drainWith
	switch {
	case strings.HasPrefix(m.Name, "append_"):
		l.events, run = 1, func(ctx context.Context, loops []*bareLoop) (time.Duration, error) {
			return loops[0].append(ctx, m.Events)
		}
	case strings.Contains(m.Name, "_100x1k"):
		l.campaigns = 100
	case strings.Contains(m.Name, "_10000x10"):
		l.campaigns = m.Events / 10
	case strings.Contains(m.Name, "_100000x1"):
		l.campaigns = m.Events
	}
	if b.server != "" {
		if loops = 4; strings.HasPrefix(m.Name, "append_") || strings.HasSuffix(m.Name, "_1_worker") {
			loops = 1
		}
		return b.onServer(ctx, l, loops, run)
	}
	dir, err := os.MkdirTemp(b.dir, "outboxweb-bare-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	journal, projections := filepath.Join(dir, "journal.db"), filepath.Join(dir, "projections.db")
	if err := b.fill(ctx, "sqlite:"+journal, "sqlite:"+projections, l); err != nil {
		return 0, err
	}
	return onFiles(ctx, journal, projections, loops, run)
}

type backlog struct {
	campaigns, events int
	random            bool // the campaigns' ids
}

// id is the id of the campaign of event i.
func (l backlog) id(i int) string {
	id := fmt.Sprintf("c-%d", i%l.campaigns)
	if l.random {
		return uuid.NewSHA1(uuid.Nil, []byte(id)).String()
	}
	return id
}

// fill appends a backlog.
func (b *bench) fill(ctx context.Context, journal, projections string, l backlog) error {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewWriter(w)
		for i := range l.events {
			n := i / l.campaigns
			fmt.Fprintf(lines, `{"campaign_id":"%s","event_id":"e-%d","event_type":"bench.moved","actor_type":"participant","actor_id":"p-1","entity_type":"token","entity_id":"t-%d",`+
				`"payload":{"amount":%d,"note":"moved across the bridge at dusk","from":{"x":12,"y":7},"to":{"x":13,"y":7}}}`+"\n", l.id(i), n, n%10_000, n%97)
		}
		w.CloseWithError(lines.Flush())
	}()
	return errors.Join(b.outboxweb(ctx, []string{"OUTBOXWEB_JOURNAL_DB=" + journal, "OUTBOXWEB_PROJECTIONS_DB=" + projections}, r, io.Discard, "append", "-"), r.Close())
}
