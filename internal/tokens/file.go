package tokens

import (
	"os"
	"regexp"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

var (
	fileName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,99}$`) // no number, as those in the database have
	fileHash = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ReadFile reads the tokens of a file, by hash. Each line has a token's name, role and hash,
// separated by spaces; empty lines and lines that begin with # are ignored. Such tokens never
// expire. An error is an *event.Refusal that names the file and the line.
func ReadFile(file string) (map[string]operator.Token, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, event.Invalid("tokens-file", "cannot read %s: %v", file, event.Cause(err))
	}
	all, names := map[string]operator.Token{}, map[string]bool{}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		token, hash, err := ParseLine(line)
		_, hashTwice := all[hash]
		switch {
		case err != nil:
		case names[token.Name]:
			err = event.Invalid("", "the name %s appears twice", token.Name)
		case hashTwice:
			err = event.Invalid("", "the hash of %s is also that of %s", token.Name, all[hash].Name)
		}
		if err != nil {
			return nil, event.Invalid("tokens-file", "%s line %d: %v", file, i+1, err)
		}
		all[hash], names[token.Name] = token, true
	}
	return all, nil
}

// ParseLine parses a line of a file of tokens. Its error does not show the line, which may have a
// token's text by mistake.
func ParseLine(line string) (token operator.Token, hash string, err error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return token, "", event.Invalid("", "a line has a name, a role and a hash, separated by spaces; outboxweb token hash prints one")
	}
	name, hash := fields[0], fields[2]
	switch {
	case !fileName.MatchString(name):
		return token, "", event.Invalid("name", "a name is a letter, then up to 99 letters, digits, dots, dashes or underscores")
	case !fileHash.MatchString(hash):
		return token, "", event.Invalid("", "the hash of %s is not 64 lower-case hexadecimal digits; outboxweb token hash prints it", name)
	}
	role, err := operator.ParseRole(fields[1])
	return operator.Token{Name: name, Role: role, CreatedBy: "tokens file"}, hash, err
}

// fromFile lists the tokens of the server's file.
func (s *Tokens) fromFile() []operator.Token {
	all := make([]operator.Token, 0, len(s.File))
	for _, token := range s.File {
		all = append(all, token)
	}
	return all
}
