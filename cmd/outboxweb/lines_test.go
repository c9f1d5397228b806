package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestLineReader_skipsALineOverTheLimitWithoutKeepingIt(t *testing.T) {
	t.Parallel()
	l := newLineReader(strings.NewReader("first\n"+strings.Repeat("x", 1<<20)+"\r\nlast"), 100)
	if text, err := l.next(); string(text) != "first" || err != nil {
		t.Errorf("line 1: %q, %v", text, err)
	}
	if _, err := l.next(); !errors.Is(err, outbox.ErrTooLarge) || cap(l.buf) > 1<<10 {
		t.Errorf("line 2: %v with a buffer of %d", err, cap(l.buf))
	}
	if text, err := l.next(); string(text) != "last" || err != nil || l.line != 3 {
		t.Errorf("line %d: %q, %v", l.line, text, err)
	}
	if _, err := l.next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last line: %v", err)
	}
}

func TestReadBatch_endsEarlyWhenLinesAreLarge(t *testing.T) {
	t.Parallel()
	line := `{"campaign_id":"c","event_type":"a","payload":{"x":"` + strings.Repeat("x", 5<<20) + `"}}` + "\n"
	l := newLineReader(strings.NewReader(strings.Repeat(line, 10)), 6<<20)
	var sizes []int
	for {
		b := must.Get(readBatch(l, 500)).Or(t)
		if b.empty() {
			break
		}
		sizes = append(sizes, b.size)
	}
	if !slices.Equal(sizes, []int{7, 3}) {
		t.Errorf("batches of %v lines, want 7 and 3", sizes)
	}
}

func TestProgress_drawsABarThatFitsOneLine(t *testing.T) {
	t.Parallel()
	var w strings.Builder
	p := &progress{w: &w, label: "append", start: time.Now()}
	p.set(5, 10)
	p.set(6, 10) // too soon after
	p.set(10, 10)
	p.end()
	want := "\r\x1b[Kappend  [###############...............]  50 %\r\x1b[Kappend  [##############################] 100 %\r\x1b[K"
	if w.String() != want {
		t.Errorf("drew %q, want %q", w.String(), want)
	}
	if line := (&progress{label: "read", start: time.Now()}).line(1234567, 0); !strings.HasPrefix(line, "read  1,234,567  ") {
		t.Errorf("without a total: %q", line)
	}
}
