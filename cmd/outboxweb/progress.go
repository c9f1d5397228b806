package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/outboxweb/outboxweb/internal/event"
)

// progress is a bar on one line of a terminal. It draws nothing when its
// writer is not a terminal. It is not safe for concurrent use.
type progress struct {
	w     io.Writer // nil draws nothing
	label string
	start time.Time
	drawn time.Time
}

func (a *app) progress(label string) *progress {
	p := &progress{label: label, start: time.Now()}
	w := a.err
	if v, ok := w.(visible); ok { // escaping would break redrawing
		w = v.w
	}
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		p.w = f
	}
	return p
}

// set draws done of total; an unknown total is 0. It draws at most ten times a second, so it may be
// called for every event.
func (p *progress) set(done, total int64) {
	if p.w == nil || time.Since(p.drawn) < 100*time.Millisecond && done != total {
		return
	}
	p.drawn = time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K%s", p.line(done, total))
}

func (p *progress) line(done, total int64) string {
	elapsed := time.Since(p.start)
	if total <= 0 {
		return fmt.Sprintf("%s  %s  %s", p.label, event.Number(done), elapsed.Round(time.Second))
	}
	const width = 30
	filled := int(min(done, total) * width / total)
	line := fmt.Sprintf("%s  [%s%s] %3d %%", p.label, strings.Repeat("#", filled), strings.Repeat(".", width-filled), min(done, total)*100/total)
	if left := time.Duration(float64(elapsed) * float64(total-done) / float64(max(1, done))); elapsed > 2*time.Second && done < total {
		line += fmt.Sprintf("  about %s left", left.Round(time.Second))
	}
	return line
}

// followPause is the polling interval of followed work.
const followPause = 200 * time.Millisecond

// watch polls with look, under a progress bar, until the work has ended. It returns early when ctx
// ends, or with the error that failed delivers.
func (a *app) watch(ctx context.Context, label string, failed <-chan error, look func() (ended bool, done, total int64, err error)) error {
	again := time.NewTicker(followPause)
	defer again.Stop()
	bar := a.progress(label)
	defer bar.end()
	for {
		ended, done, total, err := look()
		if err != nil || ended {
			return err
		}
		bar.set(done, total)
		select {
		case <-again.C:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end erases the bar.
func (p *progress) end() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
