// Command rooms prints how many lines of Go and templ each room of the house
// has, tests apart, beside a revision before, and fails when all rooms together
// have more than tools/budget grants. The programs in tools are no part of the
// house. Run it at the top of the checkout:
//
//	go run tools/rooms/main.go [-base REVISION] [-grant]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
)

const budgetFile = "tools/budget"

// lines counts the lines of a room: those of the program, and those of its tests.
type lines struct{ code, tests int }

func (n lines) add(m lines) lines { return lines{n.code + m.code, n.tests + m.tests} }

func main() {
	log.SetFlags(0)
	log.SetPrefix("rooms: ")
	base := flag.String("base", "", "also count this revision")
	grant := flag.Bool("grant", false, "write what the rooms have now to "+budgetFile+"; the commit says why")
	flag.Parse()

	budget, err := granted()
	if err != nil {
		log.Fatal(err)
	}
	now, err := count("")
	if err != nil {
		log.Fatal(err)
	}
	before, title := budget, "budget"
	if *base != "" {
		if before, err = count(*base); err != nil {
			log.Fatal(err)
		}
		title = *base
	}
	print(title, before, now)
	if *grant {
		if err := write(now); err != nil {
			log.Fatal(err)
		}
		budget = now
	}

	limit, total := sum(budget), sum(now)
	if total.code > limit.code || total.tests > limit.tests {
		log.Fatalf("%d lines of code and %d of tests are more than the %d and %d of %s; make room, or change it in the same commit and say why",
			total.code, total.tests, limit.code, limit.tests, budgetFile)
	}
}

// count returns the lines of every room at revision, or of the work tree when it is empty.
func count(revision string) (map[string]lines, error) {
	args := []string{"grep", "-c", "-e", "", revision}
	if revision == "" {
		args = []string{"grep", "-c", "--untracked", "-e", ""}
	}
	out, err := exec.Command("git", append(args, "--", "*.go", "*.templ", ":!*_templ.go", ":!**/testdata/**")...).Output()
	if err != nil {
		return nil, fmt.Errorf("count the lines of %q: %w", revision, err)
	}
	rooms := map[string]lines{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), revision+":")
		name, number, _ := strings.Cut(line, ":")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("read %q of git grep: %w", line, err)
		}
		room := room(name)
		if isTest(name, room) {
			rooms[room] = rooms[room].add(lines{tests: n})
		} else {
			rooms[room] = rooms[room].add(lines{code: n})
		}
	}
	return rooms, nil
}

// room names the room of a file: its folder, except that what lies deeper belongs to the rooms
// that the folders e2e, deploy, examples, tools and docs are.
func room(file string) string {
	dir := path.Dir(file)
	top, _, _ := strings.Cut(dir, "/")
	if slices.Contains([]string{"e2e", "deploy", "examples", "tools", "docs"}, top) {
		return top
	}
	return dir
}

// isTest reports whether a file is of tests alone: a test, a fixture of tests, or e2e.
func isTest(file, room string) bool {
	return strings.HasSuffix(file, "_test.go") || room == "e2e" || room == "internal/corpus" || room == "internal/must" || room == "internal/size" ||
		strings.HasPrefix(room, "internal/") && strings.Contains(room+"/", "test/")
}

// granted reads the budget: on each line a room, its lines of code and its lines of tests.
func granted() (map[string]lines, error) {
	text, err := os.ReadFile(budgetFile)
	if err != nil {
		return nil, err
	}
	rooms := map[string]lines{}
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("#")) {
			continue
		}
		var room string
		var n lines
		if _, err := fmt.Sscan(string(line), &room, &n.code, &n.tests); err != nil {
			return nil, fmt.Errorf("read %q of %s: %w", line, budgetFile, err)
		}
		rooms[room] = n
	}
	return rooms, nil
}

// write grants every room what it has, below the budget's heading.
func write(rooms map[string]lines) error {
	text, err := os.ReadFile(budgetFile)
	if err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		fmt.Fprintln(&b, room, rooms[room].code, rooms[room].tests)
	}
	return os.WriteFile(budgetFile, []byte(b.String()), 0o644)
}

func print(title string, before, now map[string]lines) {
	fmt.Printf("| room | code, %s | code, now | tests, %[1]s | tests, now |\n|---|--:|--:|--:|--:|\n", title)
	rooms := maps.Clone(before)
	maps.Copy(rooms, now)
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		row(room, before[room], now[room])
	}
	row("**all but tools**", sum(before), sum(now))
}

func row(name string, before, now lines) {
	fmt.Printf("| %s | %d | %d | %d | %d |\n", name, before.code, now.code, before.tests, now.tests)
}

func sum(rooms map[string]lines) (total lines) {
	for name, n := range rooms {
		if name != "tools" {
			total = total.add(n)
		}
	}
	return total
}
