package request

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// CommandLine writes a command of the program for a POSIX shell: its name, the fields of a request that
// are set as its flags, in the order of the source, and its arguments. A nil request has no flags.
func CommandLine(command string, asked any, arguments ...string) string {
	line := command
	if asked != nil {
		line += flags(reflect.ValueOf(asked))
	}
	if len(arguments) > 0 {
		line += " --" // an argument may begin with a dash
	}
	for _, argument := range arguments {
		line += " " + event.ShellWord(argument)
	}
	return line
}

// flags writes the fields that are set, and those of a nested struct, each after a space. Fields with the tag
// kong:"-" are no flags.
func flags(v reflect.Value) string {
	text := ""
	for _, f := range Fields(v.Type()) {
		field := v.FieldByIndex(f.Index)
		if field.IsZero() || f.Tag.Get("kong") == "-" {
			continue
		}
		name := " --" + flagName(f)
		switch value := reflect.Indirect(field); {
		case isNested(f.Type):
			text += flags(value)
		case Repeats(f):
			for _, one := range value.Interface().([]string) {
				text += name + "=" + event.ShellWord(one)
			}
		case value.Kind() == reflect.Bool:
			text += name
		default:
			text += name + "=" + event.ShellWord(fmt.Sprint(value.Interface()))
		}
	}
	return text
}

// flagName is the name tag of a field, or else its name in JSON as flags are written.
func flagName(f reflect.StructField) string {
	return cmp.Or(f.Tag.Get("name"), strings.ReplaceAll(Name(f), "_", "-"))
}
