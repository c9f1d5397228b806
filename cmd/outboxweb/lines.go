package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/outboxweb/outboxweb/internal/event"
)

// lineReader reads lines of limited size, counting them from 1.
type lineReader struct {
	r     *bufio.Reader
	limit int
	line  int   // number of the last line read
	bytes int64 // read so far
	buf   []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 1<<16), limit: limit}
}

// next returns the next line without its line ending; it is valid until the next call. A line over
// the limit is read past and returned as a Refusal with ErrTooLarge. The end is io.EOF.
func (l *lineReader) next() ([]byte, error) {
	l.buf = l.buf[:0]
	tooLong := false
	l.line++
	for {
		part, err := l.r.ReadSlice('\n')
		l.bytes += int64(len(part))
		if len(l.buf)+len(part) > l.limit {
			tooLong = true
		} else {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.buf) == 0 && !tooLong:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("read line %d: %w", l.line, err)
		case tooLong:
			return nil, &event.Refusal{Err: event.ErrTooLarge, Line: l.line,
				Detail: fmt.Sprintf("the line is longer than %d bytes, more than any event may have", l.limit)}
		}
		return bytes.TrimSpace(l.buf), nil
	}
}

// batch is some lines of the input that the store has not checked yet.
type batch struct {
	events  []event.Event
	lines   []int // the line of each event
	refused []refusedLine
	size    int // number of lines that are not blank
}

func (b *batch) empty() bool { return b.size == 0 }

// refuse records that event i of the batch is bad.
func (b *batch) refuse(i int, why *event.Refusal) {
	b.refused = append(b.refused, refusedLine{Line: b.lines[i], Field: why.Field, Detail: why.Detail})
}

// batchBytes is the input size at which a batch ends early, so that large events do not pile up in
// memory.
const batchBytes = 32 << 20

// readBatch reads up to size lines, not counting blank ones, and little more than batchBytes. An
// empty batch is the end of the input.
func readBatch(l *lineReader, size int) (batch, error) {
	b := batch{events: make([]event.Event, 0, size), lines: make([]int, 0, size)}
	for began := l.bytes; b.size < size && l.bytes-began < batchBytes; {
		text, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(text) == 0 {
			continue
		}
		var e event.Event
		if err == nil {
			e, err = event.ParseEvent(text)
		}
		refusal, refused := errors.AsType[*event.Refusal](err)
		switch {
		case refused:
			b.refused = append(b.refused, refusedLine{Line: l.line, Field: refusal.Field, Detail: refusal.Detail})
		case err != nil:
			return batch{}, err
		default:
			b.events = append(b.events, e)
			b.lines = append(b.lines, l.line)
		}
		b.size++
	}
	return b, nil
}
