// Command testsum reads the output of go test -json and prints what a reader
// needs: each package as it ends, with all that a failed test said, and at the
// end the slowest twenty tests and each failed one with its first error. It
// ends with 1 if anything failed.
//
//	go test -json ./... | go run tools/testsum/main.go
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

const slowest = 20

// event is what go test -json prints on a line (go doc test2json).
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64 // seconds
}

// test is one run of a test, or with an empty name its package.
type test struct {
	pkg, name string
	elapsed   time.Duration
	output    []string
}

// atLine matches what testing puts before what a test says of itself, and what a compiler says.
var atLine = regexp.MustCompile(`^\s*\S+\.go:\d+(:\d+)?: `)

func main() {
	running := map[[2]string]*test{}
	var ended, failed []*test
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if line == "" && err != nil {
			break
		}
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			fmt.Print(line) // not of go test: a message of the go command itself
			continue
		}
		key := [2]string{cmp.Or(e.Package, e.ImportPath), e.Test}
		t := running[key]
		if t == nil {
			t = &test{pkg: key[0], name: e.Test}
			running[key] = t
		}
		switch e.Action {
		case "output", "build-output":
			t.output = append(t.output, e.Output)
		case "fail", "build-fail":
			t.end(e)
			if e.FailedBuild == "" { // or else the build has said why
				failed = append(failed, t)
			}
			delete(running, key)
			fmt.Print(strings.Join(t.output, ""))
		case "pass", "skip":
			t.end(e)
			delete(running, key)
			if t.name == "" {
				fmt.Printf("ok   %s %.1fs\n", t.pkg, e.Elapsed)
			}
		}
		if t.name != "" && t.elapsed > 0 {
			ended = append(ended, t)
		}
	}
	summarize(ended, failed)
	if len(failed) > 0 {
		os.Exit(1)
	}
}

func (t *test) end(e event) { t.elapsed = time.Duration(e.Elapsed * float64(time.Second)) }

func summarize(ended, failed []*test) {
	// What parallel parts of a test take is not in its own time, and what others take is in both.
	ended = slices.DeleteFunc(slices.Clone(ended), func(t *test) bool { return slices.ContainsFunc(ended, t.has) })
	slices.SortFunc(ended, func(a, b *test) int { return cmp.Compare(b.elapsed, a.elapsed) })
	fmt.Printf("\nthe slowest of %d tests:\n", len(ended))
	for _, t := range ended[:min(slowest, len(ended))] {
		fmt.Printf("%7.1fs %s %s\n", t.elapsed.Seconds(), short(t.pkg), t.name)
	}
	if len(failed) > 0 {
		fmt.Printf("\nfailed:\n")
	}
	for _, t := range failed {
		if isCulprit(t, failed) {
			fmt.Printf("%s %s: %s\n", short(t.pkg), t.name, t.firstError())
		}
	}
}

// isCulprit reports whether t failed by itself, not because of a test below it or in it.
func isCulprit(t *test, failed []*test) bool {
	return !slices.ContainsFunc(failed, t.has)
}

// has reports whether the other is a part of the test, or of the package.
func (t *test) has(other *test) bool {
	part := t.name == "" && other.name != "" || t.name != "" && strings.HasPrefix(other.name, t.name+"/")
	return other.pkg == t.pkg && part
}

// note matches what tests log that is no error: they are told apart by their words alone.
var note = regexp.MustCompile(`: (\[rapid\] draw |note: )`)

// firstError returns the first line that the test logged at a line of its source and that is no note, or
// else the last that was printed.
func (t *test) firstError() string {
	last := "said nothing"
	for _, line := range t.output {
		if atLine.MatchString(line) && !note.MatchString(line) || strings.HasPrefix(line, "panic: ") {
			return strings.TrimSpace(line)
		}
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "FAIL") {
			last = line
		}
	}
	return last
}

func short(pkg string) string { return strings.TrimPrefix(pkg, "github.com/outboxweb/outboxweb/") }
