// What upstream's own code answers: its structured allocator, its CEL for device selectors, and
// what it says that pods request.
//
// Each subcommand reads JSON lines and writes one line for each:
//
//	oracle allocate   cases of the conformance vectors
//	oracle cel        expressions with a device
//	oracle bench      a cluster, and pods for it: how long the allocator takes
//	oracle requests   pods: what they request of a node
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	commands := map[string]func([]byte) (any, error){
		"allocate": allocate,
		"cel":      evaluate,
		"bench":    newBench().answer,
		"requests": podRequests,
	}
	if len(os.Args) != 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: oracle allocate|cel|bench|requests")
		os.Exit(2)
	}
	if err := serve(commands[os.Args[1]]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(answer func([]byte) (any, error)) error {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	for {
		line, err := input.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return nil
		}
		answered, err := answer(line)
		if err != nil {
			return fmt.Errorf("%w in %s", err, line)
		}
		if err := encoder.Encode(answered); err != nil {
			return err
		}
		if err := output.Flush(); err != nil {
			return err
		}
	}
}
