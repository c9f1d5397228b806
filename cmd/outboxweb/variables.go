package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
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
	for _, command := range model.Children {
		if command.Name != "health" {
			continue
		}
		for _, flag := range command.Flags {
			for _, of := range configuring(model) {
				if of.Name == flag.Name {
					shared[flag] = of
				}
			}
		}
	}
	return shared
}

// configuring lists the common flags and those of serve.
func configuring(model *kong.Application) []*kong.Flag {
	flags := slices.Clone(model.Flags)
	for _, command := range model.Children {
		if command.Name == "serve" {
			flags = append(flags, command.Flags...)
		}
	}
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
