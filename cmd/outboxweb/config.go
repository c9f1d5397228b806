package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// fileFlag is the configuration file: YAML, one key per flag, with _ for -. It may set the common
// flags and those of serve, whatever the command is.
type fileFlag string

// alertsKey has rules and receivers, sourcesKey the databases of services whose rows become events.
const alertsKey, sourcesKey = "alerts", "sources"

// sectionKeys are the keys that are no flags.
var sectionKeys = []string{destination.TopicsKey, destination.DefaultsKey, alertsKey, sourcesKey}

// section parses a section of the configuration file; without one the settings are empty. An error names the
// file and the line at fault.
func section[T any](c *Common, key string, parse func(*yaml.Node, func(string) (string, bool)) (T, error)) (settings T, err error) {
	if c.sections[key] == nil {
		return settings, nil
	}
	var e environment
	settings, err = parse(c.sections[key], e.lookup)
	return settings, c.inConfig(cmp.Or(e.err, err))
}

// inConfig names the file in the error of a section.
func (c *Common) inConfig(err error) error {
	if refusal, ok := errors.AsType[*event.Refusal](err); ok {
		return usagef("--config: %s %s", c.Config, refusal)
	}
	return err
}

// BeforeResolve implements kong's hook: it reads the file and resolves flags that neither the
// command line nor the environment sets.
func (f fileFlag) BeforeResolve(parser *kong.Kong, parsed *kong.Context, path *kong.Path, common *Common) error {
	name := string(parsed.FlagValue(path.Flag).(fileFlag))
	if name == "" {
		return nil
	}
	values, sections, err := readConfig(name, fileFlags(parser.Model))
	if err != nil {
		return err
	}
	common.sections = sections
	shared := probing(parser.Model)
	parsed.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if envGiven(flag) {
			return nil, nil
		}
		if of, ok := shared[flag]; ok {
			flag = of
		}
		return values[flag], nil
	}))
	return nil
}

func envGiven(flag *kong.Flag) bool {
	for _, name := range flag.Envs {
		_, set := os.LookupEnv(name)
		_, inFile := os.LookupEnv(name + fileSuffix)
		if set || inFile && mayBeInFile(flag) {
			return true
		}
	}
	return false
}

// fileFlags lists the flags that a configuration file may set, by their key.
func fileFlags(model *kong.Application) map[string]*kong.Flag {
	keys := map[string]*kong.Flag{}
	for _, flag := range configuring(model) {
		if flag.Name != "config" {
			keys[strings.ReplaceAll(flag.Name, "-", "_")] = flag
		}
	}
	return keys
}

// readConfig reads the file and returns each flag's value in the form that kong's mappers take, and
// the nodes of the keys that are no flags. Errors name the file and the line.
func readConfig(name string, keys map[string]*kong.Flag) (values map[*kong.Flag]any, sections map[string]*yaml.Node, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, usagef("--config: cannot read %s: %v", name, event.Cause(err))
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, nil, usagef("--config: %s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) == 0 {
		return nil, nil, nil
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, nil, usagef("--config: %s line %d: expected keys with values, such as mode: outbox_apply_only", name, root.Line)
	}
	values, sections = map[*kong.Flag]any{}, map[string]*yaml.Node{}
	for pair := range slices.Chunk(root.Content, 2) {
		key, node := pair[0], pair[1]
		flag, known := keys[key.Value]
		_, twice := values[flag]
		switch {
		case slices.Contains(sectionKeys, key.Value) && sections[key.Value] == nil:
			sections[key.Value] = node
			continue
		case twice || sections[key.Value] != nil:
			return nil, nil, usagef("--config: %s line %d: key %q appears twice", name, key.Line, key.Value)
		case !known:
			if meant := strings.ReplaceAll(key.Value, "-", "_"); keys[meant] != nil || slices.Contains(sectionKeys, meant) {
				return nil, nil, usagef("--config: %s line %d: unknown key %q; write it as %s", name, key.Line, key.Value, meant)
			}
			return nil, nil, usagef("--config: %s line %d: unknown key %q", name, key.Line, key.Value)
		}
		value, err := fileValue(flag, node)
		if refusal, ok := errors.AsType[*event.Refusal](err); ok {
			return nil, nil, usagef("--config: %s line %d: %v", name, node.Line, refusal)
		}
		if err != nil {
			return nil, nil, usagef("--config: %s line %d: %s %v", name, node.Line, key.Value, err)
		}
		values[flag] = value
	}
	return values, sections, nil
}

// fileValue checks a YAML value against the flag's type. The error completes a sentence that begins
// with the key, unless it is an *event.Refusal, which is a sentence of its own.
func fileValue(flag *kong.Flag, node *yaml.Node) (any, error) {
	if flag.IsSlice() && node.Kind == yaml.SequenceNode {
		items := make([]any, 0, len(node.Content)) // kong takes them as they are, commas included
		for _, item := range node.Content {
			if item.ShortTag() != "!!str" {
				return nil, errors.New("must be a list of strings")
			}
			items = append(items, item.Value)
		}
		return items, nil
	}
	kind, tags := kindOf(flag)
	if node.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("must be %s", kind)
	}
	if !slices.Contains(tags, node.ShortTag()) {
		return nil, fmt.Errorf("must be %s, not %q", kind, node.Value)
	}
	target := reflect.New(flag.Target.Type()).Elem()
	if target.Kind() == reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
	}
	scan := kong.Scan().PushTyped(node.Value, kong.FlagValueToken)
	if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, target); err != nil {
		if refusal, ok := errors.AsType[*event.Refusal](err); ok {
			return nil, refusal
		}
		return nil, fmt.Errorf("must be %s, not %q", kind, node.Value)
	}
	if flag.Enum != "" && !flag.EnumMap()[node.Value] {
		return nil, fmt.Errorf("must be one of %s, not %q", flag.Enum, node.Value)
	}
	return node.Value, nil
}

// kindOf names what a flag takes, and lists the YAML tags of it.
func kindOf(flag *kong.Flag) (kind string, tags []string) {
	switch {
	case flag.IsBool():
		return "true or false", []string{"!!bool"}
	case flag.IsSlice():
		return "a list of strings", []string{"!!str"}
	case isDuration(flag):
		return "a duration such as 2s", []string{"!!str", "!!int"} // 0 needs no unit
	case flag.Target.Type() == reflect.TypeFor[daysFlag]():
		return "a duration such as 36h or 365d", []string{"!!str", "!!int"}
	case flag.Target.CanInt():
		return "a whole number", []string{"!!int"}
	case flag.Target.CanFloat():
		return "a number", []string{"!!float", "!!int"}
	}
	return "a string", []string{"!!str"}
}

func isDuration(flag *kong.Flag) bool { return flag.Target.Type() == reflect.TypeFor[time.Duration]() }
