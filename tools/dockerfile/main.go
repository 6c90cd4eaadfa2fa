// Command dockerfile reads Dockerfiles with BuildKit's own parser and linter and prints what they say as
// JSON: per file its stages with their instructions, and a line for each of the linter's warnings. With -ignored
// FILE it prints those of the given paths that this .dockerignore keeps out of the build context, one a line.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

type instruction struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Of COPY: the stage or image that is copied from, what, and where to.
	From    string   `json:"from,omitempty"`
	Sources []string `json:"sources,omitempty"`
	Target  string   `json:"target,omitempty"`
}

type stage struct {
	Base         string        `json:"base"`
	Platform     string        `json:"platform,omitempty"`
	Name         string        `json:"name"`
	Instructions []instruction `json:"instructions"`
}

type file struct {
	Arguments map[string]string `json:"arguments"`
	Stages    []stage           `json:"stages"`
	Warnings  []string          `json:"warnings"`
}

func main() {
	ignore := flag.String("ignored", "", "a .dockerignore")
	flag.Parse()
	var err error
	if *ignore != "" {
		err = ignored(*ignore, flag.Args())
	} else {
		err = describe(flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func describe(paths []string) error {
	found := map[string]file{}
	for _, path := range paths {
		read, err := read(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		found[path] = read
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func ignored(ignore string, paths []string) error {
	text, err := os.ReadFile(ignore)
	if err != nil {
		return err
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", ignore, err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return fmt.Errorf("%s: %w", ignore, err)
	}
	for _, path := range paths {
		out, err := matcher.MatchesOrParentMatches(path)
		if err != nil {
			return err
		}
		if out {
			fmt.Println(path)
		}
	}
	return nil
}

func read(path string) (file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return file{}, err
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return file{}, err
	}
	made := file{Arguments: map[string]string{}, Warnings: []string{}}
	lint := linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, where []parser.Range) {
			made.Warnings = append(made.Warnings, fmt.Sprintf("%s: %s (line %d)", rule, message, line(where)))
		},
	})
	stages, arguments, err := instructions.Parse(tree.AST, lint)
	if err != nil {
		return file{}, err
	}
	for _, group := range arguments {
		for _, argument := range group.Args {
			made.Arguments[argument.Key] = argument.ValueString()
		}
	}
	for _, parsed := range stages {
		made.Stages = append(made.Stages, describeStage(parsed))
	}
	return made, nil
}

func line(where []parser.Range) int {
	if len(where) == 0 {
		return 0
	}
	return where[0].Start.Line
}

func describeStage(parsed instructions.Stage) stage {
	made := stage{Base: parsed.BaseName, Platform: parsed.Platform, Name: parsed.Name, Instructions: []instruction{}}
	for _, command := range parsed.Commands {
		step := instruction{Name: strings.ToUpper(command.Name()), Text: fmt.Sprint(command)}
		if copied, ok := command.(*instructions.CopyCommand); ok {
			step.From, step.Sources, step.Target = copied.From, copied.SourcePaths, copied.DestPath
		}
		made.Instructions = append(made.Instructions, step)
	}
	return made
}
