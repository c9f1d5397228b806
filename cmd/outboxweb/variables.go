package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/auth"
)

const variablePrefix = "OUTBOXWEB_"

// nameVariables assigns environment variables to the flags that a configuration file may set, and
// to --config itself.
func nameVariables(parser *kong.Kong) error {
	for _, flag := range configuring(parser.Model) {
		name := variablePrefix + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		flag.Envs = []string{name}
		flag.Tag.Envs = flag.Envs
	}
	for flag, of := range probing(parser.Model) {
		flag.Envs = of.Envs
		flag.Tag.Envs = flag.Envs
	}
	return nil
}

// probing maps flags of health to those of serve with the same name, from whose variables and keys
// of the configuration file they take their values too.
func probing(model *kong.Application) map[*kong.Flag]*kong.Flag {
	shared := map[*kong.Flag]*kong.Flag{}
	for _, flag := range childNamed(model.Node, "health").Flags {
		for _, of := range configuring(model) {
			if of.Name == flag.Name {
				shared[flag] = of
			}
		}
	}
	return shared
}

// configuring lists the common flags and those of serve.
func configuring(model *kong.Application) []*kong.Flag {
	flags := slices.Concat(model.Flags, childNamed(model.Node, "serve").Flags)
	return slices.DeleteFunc(flags, func(flag *kong.Flag) bool { return flag.Name == "help" })
}

// warnOfVariables warns about each environment variable that looks like one of this program's but
// is unknown: in a server's log, and on stderr for other commands. It does not show values.
func (a *app) warnOfVariables(parsed *kong.Context, environment []string) {
	var known []string
	for _, flag := range configuring(parsed.Model) {
		known = append(known, flag.Envs...)
		if mayBeInFile(flag) {
			known = append(known, flag.Envs[0]+fileSuffix)
		}
	}
	for _, setting := range environment {
		name, _, _ := strings.Cut(setting, "=")
		value := strings.TrimSuffix(name, fileSuffix)
		inFile := slices.ContainsFunc(sectionKeys, func(key string) bool { return mentions(a.sections[key], value) })
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(known, name) || inFile {
			continue
		}
		text := "the environment variable " + name + " is unknown and has no effect; outboxweb serve --help lists those that are known"
		if parsed.Selected() != nil && parsed.Selected().Name == "serve" {
			a.logger().Warn(text)
		} else {
			fmt.Fprintln(a.err, "outboxweb:", text)
		}
	}
}

// mentions reports whether part of a configuration file references a variable, as a destination's
// secret may.
func mentions(node *yaml.Node, name string) bool {
	if node == nil {
		return false
	}
	return strings.Contains(node.Value, name) || slices.ContainsFunc(node.Content, func(n *yaml.Node) bool { return mentions(n, name) })
}

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
		e.err = cmp.Or(e.err, usagef("%s and %s are both set; remove one of them", name, name+fileSuffix))
		return "", true
	}
	value, err := auth.ReadSecret(file)
	if err != nil {
		e.err = cmp.Or(e.err, usagef("%s: %v", name+fileSuffix, err))
	}
	return value, true
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
