/* apiary/examples/hosts/c/session_program.c - two schedulers of apiary, used from C.
 * SPDX-License-Identifier: MIT
 *
 * session_program                     prints session.expected
 * session_program --times N [hived]   measures N lines: microseconds for each
 */
#include "apiary_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char* const gang_lines[] = {
    "{\"op\":\"config\",\"topology\":\"SwitchName=r0 Nodes=n[0-1]\\nSwitchName=r1 Nodes=n[2-3]\","
    "\"nodes\":\"NodeName=n[0-3] Gres=gpu:8\"}",
    "{\"op\":\"propose\",\"group\":\"train\",\"members\":[{\"pods\":2,\"leafs\":8}],\"required\":\"rack\"}",
    "{\"op\":\"commit\"}",
    "{\"op\":\"propose\",\"group\":\"large\",\"members\":[{\"pods\":4,\"leafs\":8}]}",
    "{\"op\":\"delete\",\"group\":\"nothing\"}"};
static const char* const hived_lines[] = {
    "{\"op\":\"config\",\"physicalCluster\":{\"cellTypes\":{\"NODE\":{\"childCellType\":\"GPU\","
    "\"childCellNumber\":4,\"isNodeLevel\":true}},\"physicalCells\":[{\"cellType\":\"NODE\","
    "\"cellAddress\":\"n0\"}]},\"virtualClusters\":{\"a\":{\"virtualCells\":[{\"cellType\":\"NODE\","
    "\"cellNumber\":1}]}}}",
    "{\"op\":\"schedule\",\"group\":\"g\",\"vc\":\"a\",\"priority\":1,"
    "\"members\":[{\"pods\":1,\"leafs\":2}]}"};

static void ask(apiary_session* session, const char* line) {
  puts(apiary_session_line(session, line));
}

static apiary_session* new_session(const char* kind) {
  apiary_session* session = apiary_session_new(APIARY_SESSION_ABI, kind);
  if (session == NULL) {
    fprintf(stderr, "no session: the library has ABI %u, this program %u\n",
            apiary_session_abi_version(), APIARY_SESSION_ABI);
    exit(1);
  }
  return session;
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* A session with 1,000 nodes of 8 GPUs in racks of 10. */
static apiary_session* large_cluster(const char* kind) {
  apiary_session* session = new_session(kind);
  const int is_gang = strcmp(kind, "gang") == 0;
  const size_t size = 200000;
  char* config = malloc(size);
  if (config == NULL) exit(1);
  size_t at = (size_t)snprintf(
      config, size, "{\"op\":\"config\",%s",
      is_gang ? "\"topology\":\""
              : "\"physicalCluster\":{\"cellTypes\":{\"NODE\":{\"childCellType\":\"GPU\","
                "\"childCellNumber\":8,\"isNodeLevel\":true},\"RACK\":{\"childCellType\":\"NODE\","
                "\"childCellNumber\":10}},\"physicalCells\":[");
  for (int r = 0; r < 100; ++r) {
    if (is_gang) {
      at += (size_t)snprintf(config + at, size - at, "SwitchName=r%d Nodes=n[%d-%d]\\n", r, 10 * r,
                             10 * r + 9);
      continue;
    }
    at += (size_t)snprintf(config + at, size - at, "%s{\"cellType\":\"RACK\",\"cellChildren\":[",
                           r == 0 ? "" : ",");
    for (int n = 0; n < 10; ++n)
      at += (size_t)snprintf(config + at, size - at, "%s{\"cellAddress\":\"n%d\"}",
                             n == 0 ? "" : ",", 10 * r + n);
    at += (size_t)snprintf(config + at, size - at, "]}");
  }
  snprintf(config + at, size - at, "%s",
           is_gang ? "\",\"nodes\":\"NodeName=n[0-999] Gres=gpu:8\"}"
                   : "]},\"virtualClusters\":{\"a\":{\"virtualCells\":[{\"cellType\":\"RACK\","
                     "\"cellNumber\":100}]}}}");
  const char* answer = apiary_session_line(session, config);
  if (strstr(answer, "\"ok\"") == NULL) {
    puts(answer);
    exit(1);
  }
  free(config);
  return session;
}

/* A gang of 2 x 8 GPUs is proposed and committed (HiveD: scheduled), and ended when 400 later ones run. */
static int measure(long lines, const char* kind) {
  apiary_session* session = large_cluster(kind);
  const int is_gang = strcmp(kind, "gang") == 0;
  const long steps = is_gang ? 3 : 2; /* the lines of a gang */
  char line[200];
  long wrong = 0;
  const double start = now_us();
  for (long i = 0; i < lines; ++i) {
    const long job = i / steps;
    if (i % steps == 0)
      snprintf(line, sizeof line,
               is_gang ? "{\"op\":\"propose\",\"group\":%ld,\"members\":[{\"pods\":2,\"leafs\":8}],"
                         "\"required\":\"rack\"}"
                       : "{\"op\":\"schedule\",\"group\":\"g%ld\",\"vc\":\"a\",\"priority\":1,"
                         "\"members\":[{\"pods\":2,\"leafs\":8}]}",
               job);
    else if (i % steps == 1 && is_gang)
      snprintf(line, sizeof line, "{\"op\":\"commit\"}");
    else if (job < 400)
      snprintf(line, sizeof line, "{\"op\":\"note\"}");
    else
      snprintf(line, sizeof line,
               is_gang ? "{\"op\":\"delete\",\"group\":%ld}" : "{\"op\":\"delete\",\"group\":\"g%ld\"}",
               job - 400);
    const char* answer = apiary_session_line(session, line);
    wrong += strstr(answer, i % steps == 0 ? "\"bind\"" : "\"ok\"") == NULL;
  }
  const double us = now_us() - start;
  printf("%.2f us a line, %ld unexpected answers\n", us / (double)lines, wrong);
  apiary_session_free(session);
  return wrong != 0;
}

int main(int argc, char** argv) {
  if (argc >= 3 && strcmp(argv[1], "--times") == 0)
    return measure(atol(argv[2]), argc > 3 ? argv[3] : "gang");
  printf("ABI %u\n", apiary_session_abi_version());
  apiary_session* gangs = new_session("gang");
  for (size_t i = 0; i < sizeof gang_lines / sizeof *gang_lines; ++i) ask(gangs, gang_lines[i]);
  puts("on a copy, without the job:");
  apiary_session* copy = apiary_session_clone(gangs);
  ask(copy, "{\"op\":\"delete\",\"group\":\"train\"}");
  ask(copy, gang_lines[3]);
  apiary_session_free(copy);
  puts("the original:");
  ask(gangs, "{\"op\":\"audit\"}");
  apiary_session_free(gangs);
  puts("HiveD:");
  apiary_session* hived = new_session("hived");
  for (size_t i = 0; i < sizeof hived_lines / sizeof *hived_lines; ++i) ask(hived, hived_lines[i]);
  apiary_session_free(hived);
  puts("faults:");
  puts(apiary_session_new(APIARY_SESSION_ABI + 1, "gang") == NULL ? "another ABI: no session" : "?");
  puts(apiary_session_new(APIARY_SESSION_ABI, "other") == NULL ? "another kind: no session" : "?");
  ask(NULL, "{}");
  return 0;
}
