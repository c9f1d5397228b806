package main

import (
	"reflect"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// checkLimits refuses a number or a duration that is given and not within the tags least and most of its flag,
// such as least:"1" most:"${max_page}".
func checkLimits(parsed *kong.Context) error {
	for _, flag := range parsed.Flags() {
		least, most := expanded(flag.Tag.Get("least")), expanded(flag.Tag.Get("most"))
		if least == "" || sourceOf(parsed, flag) == fromDefault {
			continue
		}
		switch n := reflect.Indirect(flag.Target).Int(); {
		case most == "" && n < limitOf(least):
			return usagef("--%s must be %s or more", flag.Name, least)
		case most != "" && (n < limitOf(least) || n > limitOf(most)):
			return usagef("--%s must lie between %s and %s", flag.Name, least, most)
		}
	}
	return nil
}

// limitOf reads a tag: a duration with its unit, or a number. Another is a mistake in the command line's model.
func limitOf(tag string) int64 {
	if span, err := time.ParseDuration(tag); err == nil {
		return int64(span)
	}
	n, err := strconv.ParseInt(tag, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
