package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// fileSuffix ends the name of the variable that names a file with another variable's value.
const fileSuffix = "_FILE"

// environment looks up variables: NAME itself, or the content of the file that NAME_FILE names. So
// a secret can be a mounted file, and need not be in the environment, which child processes inherit
// and inspections of a container show. It keeps its first error.
type environment struct{ err error }

// lookup returns a variable's value, and whether it is set.
func (e *environment) lookup(name string) (value string, set bool) {
	value, set = os.LookupEnv(name)
	file, inFile := os.LookupEnv(name + fileSuffix)
	if !inFile {
		return value, set
	}
	if set {
		e.fail(usagef("%s and %s are both set; remove one of them", name, name+fileSuffix))
		return "", true
	}
	value, err := readSecret(file)
	if err != nil {
		e.fail(usagef("%s: %v", name+fileSuffix, err))
	}
	return value, true
}

func (e *environment) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// readSecret returns the content of a file without its last line break. The error completes a
// sentence that begins with the setting's name.
func readSecret(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", file, outbox.Cause(err))
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", errors.New(file + " is empty")
	}
	return secret, nil
}

// mayBeInFile reports whether a flag's variable has a twin that names a file: the flag may carry a
// secret. Flags that name files themselves have none.
func mayBeInFile(flag *kong.Flag) bool { return flag.Tag.Has("secret") && len(flag.Envs) > 0 }

// BeforeResolve implements kong's hook: it reads the values of flags that are in files named by
// variables. The command line takes precedence, as over the variables themselves.
func (c *Common) BeforeResolve(parsed *kong.Context) error {
	var e environment
	values := map[*kong.Flag]any{}
	for _, flag := range parsed.Flags() {
		onCommandLine := slices.ContainsFunc(parsed.Path, func(p *kong.Path) bool { return p.Flag == flag })
		if !mayBeInFile(flag) || onCommandLine {
			continue
		}
		if _, inFile := os.LookupEnv(flag.Envs[0] + fileSuffix); inFile {
			values[flag], _ = e.lookup(flag.Envs[0])
		}
	}
	parsed.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		return values[flag], nil
	}))
	return e.err
}
