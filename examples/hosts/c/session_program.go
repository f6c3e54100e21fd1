// apiary/examples/hosts/c/session_program.go - two schedulers of apiary, used from Go.
// SPDX-License-Identifier: MIT
//
//	session_program            prints session.expected
//	session_program --times N  measures N lines: microseconds for each
//
// To build it: CGO_CFLAGS=-I<this folder> CGO_LDFLAGS=-L<folder of the library> go build session_program.go
package main

/*
#cgo LDFLAGS: -lapiary_session
#include <stdlib.h>
#include "apiary_session.h"
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// Session is one scheduler. It must be freed.
type Session struct{ handle *C.apiary_session }

// NewSession makes a session of kind "gang" or "hived"; it checks the ABI of the library.
func NewSession(kind string) (*Session, error) {
	if abi := C.apiary_session_abi_version(); abi != C.APIARY_SESSION_ABI {
		return nil, fmt.Errorf("the library has ABI %d, this program %d", abi, C.APIARY_SESSION_ABI)
	}
	name := C.CString(kind)
	defer C.free(unsafe.Pointer(name))
	handle := C.apiary_session_new(C.APIARY_SESSION_ABI, name)
	if handle == nil {
		return nil, fmt.Errorf("there is no session of kind %q", kind)
	}
	return &Session{handle}, nil
}

// Line returns the answer to a line.
func (s *Session) Line(line string) string {
	text := C.CString(line)
	defer C.free(unsafe.Pointer(text))
	return C.GoString(C.apiary_session_line(s.handle, text))
}

// Clone returns a copy.
func (s *Session) Clone() *Session { return &Session{C.apiary_session_clone(s.handle)} }

// Free ends the session.
func (s *Session) Free() { C.apiary_session_free(s.handle) }

func must(kind string) *Session {
	session, err := NewSession(kind)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return session
}

func measure(lines int) {
	session := must("gang")
	var racks strings.Builder
	for r := 0; r < 100; r++ {
		fmt.Fprintf(&racks, `SwitchName=r%d Nodes=n[%d-%d]\n`, r, 10*r, 10*r+9)
	}
	session.Line(`{"op":"config","topology":"` + racks.String() + `","nodes":"NodeName=n[0-999] Gres=gpu:8"}`)
	wrong := 0
	start := time.Now()
	for i := 0; i < lines; i++ {
		job := i / 3
		line, want := `{"op":"commit"}`, `"ok"`
		if i%3 == 0 {
			line = fmt.Sprintf(`{"op":"propose","group":%d,"members":[{"pods":2,"leafs":8}],"required":"rack"}`, job)
			want = `"bind"`
		} else if i%3 == 2 {
			line = `{"op":"note"}`
			if job >= 400 {
				line = fmt.Sprintf(`{"op":"delete","group":%d}`, job-400)
			}
		}
		if !strings.Contains(session.Line(line), want) {
			wrong++
		}
	}
	us := float64(time.Since(start).Nanoseconds()) / 1e3 / float64(lines)
	fmt.Printf("%.2f us a line, %d unexpected answers\n", us, wrong)
	if wrong != 0 {
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "--times" {
		lines, _ := strconv.Atoi(os.Args[2])
		measure(lines)
		return
	}
	fmt.Println("ABI", C.apiary_session_abi_version())
	gangs := must("gang")
	large := `{"op":"propose","group":"large","members":[{"pods":4,"leafs":8}]}`
	for _, line := range []string{
		`{"op":"config","topology":"SwitchName=r0 Nodes=n[0-1]\nSwitchName=r1 Nodes=n[2-3]",` +
			`"nodes":"NodeName=n[0-3] Gres=gpu:8"}`,
		`{"op":"propose","group":"train","members":[{"pods":2,"leafs":8}],"required":"rack"}`,
		`{"op":"commit"}`, large, `{"op":"delete","group":"nothing"}`} {
		fmt.Println(gangs.Line(line))
	}
	fmt.Println("on a copy, without the job:")
	clone := gangs.Clone()
	fmt.Println(clone.Line(`{"op":"delete","group":"train"}`))
	fmt.Println(clone.Line(large))
	clone.Free()
	fmt.Println("the original:")
	fmt.Println(gangs.Line(`{"op":"audit"}`))
	gangs.Free()
	fmt.Println("HiveD:")
	hived := must("hived")
	fmt.Println(hived.Line(`{"op":"config","physicalCluster":{"cellTypes":{"NODE":{"childCellType":"GPU",` +
		`"childCellNumber":4,"isNodeLevel":true}},"physicalCells":[{"cellType":"NODE","cellAddress":"n0"}]},` +
		`"virtualClusters":{"a":{"virtualCells":[{"cellType":"NODE","cellNumber":1}]}}}`))
	fmt.Println(hived.Line(`{"op":"schedule","group":"g","vc":"a","priority":1,"members":[{"pods":1,"leafs":2}]}`))
	hived.Free()
	fmt.Println("faults:")
	kind := C.CString("gang")
	defer C.free(unsafe.Pointer(kind))
	if C.apiary_session_new(C.APIARY_SESSION_ABI+1, kind) == nil {
		fmt.Println("another ABI: no session")
	}
	if _, err := NewSession("other"); err != nil {
		fmt.Println("another kind: no session")
	}
	none := Session{}
	fmt.Println(none.Line("{}"))
}
