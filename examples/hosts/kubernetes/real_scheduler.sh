#!/bin/sh
# apiary/examples/hosts/kubernetes/real_scheduler.sh - builds a real kube-scheduler, and lets it ask the extender.
# SPDX-License-Identifier: MIT
#
# sh examples/hosts/kubernetes/real_scheduler.sh PROGRAM [FOLDER]
#
# PROGRAM is the extender that CMake builds: build/examples/hosts/kubernetes/kubernetes_extender. For people who
# want to see it; no test runs it. It downloads Debian's source package of Kubernetes (1.20 in Debian 12),
# which contains what it needs of Go, adds one line without which 1.20.2 never asks `preempt`, builds
# kube-apiserver and kube-scheduler in FOLDER (eight minutes of CPU time, 3 GB; kept for the next run), and
# starts them with etcd on the loopback device. The eight nodes of recordings/nodes.json have no kubelet, so
# pods are bound, and never run. The scheduler has the configuration of manifests/scheduler.yaml. A guest is
# on each of seven nodes; then a gang of four pods that must be in one block comes, and three guests are
# evicted.
# Ends with 0 if this happens. Needs root or sudo only where a package is missing.
set -eu
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=${2:-$here/../../../build/kubernetes}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

(cd "$here/../../.." && sh tests/packages.sh golang-go dpkg-dev ca-certificates openssl curl make jq rsync)
# Not installed, for the package of etcd would start its service.
if ! [ -x "$folder/programs/usr/bin/etcd" ] || ! [ -x "$folder/programs/usr/bin/kubectl" ]; then
  mkdir -p "$folder/packages"
  (cd "$folder/packages" && apt-get -q download etcd-server kubernetes-client)
  for package in "$folder/packages"/*.deb; do dpkg -x "$package" "$folder/programs"; done
fi
PATH=$folder/programs/usr/bin:$PATH
if ! [ -x "$folder/kube-scheduler" ] || ! [ -x "$folder/kube-apiserver" ]; then
  # Source packages, without a change to the system's lists of packages.
  . /etc/os-release
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" \
    'Component: main' 'Origin: Debian' | sort -u | head -n 1)
  [ -n "$mirror" ] || { echo "apt has no list of Debian's packages: run apt-get update"; exit 1; }
  echo "deb-src $mirror $VERSION_CODENAME main" > "$folder/apt/sources.list"
  apt_get() {
    apt-get -q -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
      -o Dir::State::Lists="$folder/apt/lists" -o Dir::Cache="$folder/apt" "$@"
  }
  apt_get update
  (cd "$folder" && apt_get source kubernetes)
  source=$(find "$folder" -maxdepth 1 -type d -name 'kubernetes-*' | head -n 1)
  # As Debian's rules: the source is in a GOPATH, and some of its code is generated.
  mkdir -p "$source/.go/src/k8s.io"
  ln -sfn ../../.. "$source/.go/src/k8s.io/kubernetes"
  export GOPATH="$source/.go" GOCACHE="$folder/go" CGO_ENABLED=0
  # 1.20.2 never calls the preempt verb of an extender. So the scheduler that is built is not the unchanged
  # 1.20.2: this line is added, which later versions have.
  factory=$source/pkg/scheduler/factory.go
  grep -q 'frameworkruntime.WithExtenders' "$factory" ||
    sed -i 's/^\(.*\)frameworkruntime.WithPodNominator(nominator),/&\n\1frameworkruntime.WithExtenders(extenders),/' "$factory"
  (cd "$source/.go/src/k8s.io/kubernetes" && make generated_files && GO111MODULE=off \
    go build -o "$folder/" ./cmd/kube-apiserver ./cmd/kube-scheduler)
fi

running=
ended() {
  status=$?
  trap '' HUP INT TERM
  # Those that were started last end first; without etcd, the API server would wait for a minute.
  for process in $running; do kill "$process" 2> /dev/null || true; done
  sleep 2
  for process in $running; do kill -9 "$process" 2> /dev/null || true; done
  [ "$status" -eq 0 ] || echo "the logs are in $folder/run"
  exit "$status"
}
trap ended EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

rm -rf "$folder/run"
mkdir "$folder/run"
cd "$folder/run"
# start <name> <command...>
start() {
  name=$1
  shift
  "$@" > "$name.log" 2>&1 &
  running="$! $running"
}
# wait_for <command...>: at most a minute.
wait_for() {
  patience=600
  until "$@" > /dev/null 2>&1; do
    patience=$((patience - 1))
    [ "$patience" -gt 0 ] || { echo "in vain: $*"; exit 1; }
    sleep 0.1
  done
}
token=$(openssl rand -hex 16)
echo "$token,admin,admin,system:masters" > tokens
openssl genrsa -out key 2048 2> /dev/null
start etcd etcd --data-dir etcd --listen-client-urls http://127.0.0.1:12379 \
  --advertise-client-urls http://127.0.0.1:12379 --listen-peer-urls http://127.0.0.1:12380
# No kubelet says that a node is ready, so new nodes must not get the taint of those that are not.
start apiserver "$folder/kube-apiserver" --etcd-servers=http://127.0.0.1:12379 --secure-port=16443 \
  --bind-address=127.0.0.1 --cert-dir=certificates --token-auth-file=tokens \
  --authorization-mode=AlwaysAllow --service-account-key-file=key \
  --service-account-signing-key-file=key --service-account-issuer=https://kubernetes.default.svc \
  --service-cluster-ip-range=10.0.0.0/24 --disable-admission-plugins=ServiceAccount,TaintNodesByCondition
cat > kubeconfig << END
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:16443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: $token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
END
KUBECONFIG=$folder/run/kubeconfig
export KUBECONFIG
wait_for kubectl get namespace default
kubectl create -f "$here/recordings/nodes.json" > /dev/null
start proxy kubectl proxy --port=18001
wait_for curl -sf http://127.0.0.1:18001/healthz
start extender "$program" --api http://127.0.0.1:18001 --port 18888 \
  --levels rack=cloud.provider.com/topology-rack,block=cloud.provider.com/topology-block
wait_for curl -sf http://127.0.0.1:18888/healthz
# The API server accepts both manifests; the scheduler has the configuration of scheduler.yaml, whose version
# 1.20 calls v1beta1.
for manifest in scheduler load; do
  kubectl create --dry-run=server -f "$here/manifests/$manifest.yaml"
done
sed -n '/^  config.yaml: |/,/^---/s/^    //p' "$here/manifests/scheduler.yaml" |
  sed "s|^apiVersion: .*|&beta1|; s|^kind: .*|&\nclientConnection: {kubeconfig: $KUBECONFIG}|" > scheduler.yaml
printf '%s\n' 'healthzBindAddress: 127.0.0.1:10251' 'metricsBindAddress: 127.0.0.1:10251' >> scheduler.yaml
start scheduler "$folder/kube-scheduler" --config=scheduler.yaml --bind-address=127.0.0.1

# pod <name> <class> <metadata>: without a grace period, for no kubelet ends it.
pod() {
  kubectl create -f - > /dev/null << END
apiVersion: v1
kind: Pod
metadata: {name: $1$3}
spec:
  schedulerName: apiary
  priorityClassName: $2
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
  - {name: main, image: pause, resources: {limits: {nvidia.com/gpu: 8}}}
END
}
# bound <number>: whether so many pods have nodes.
bound() { [ "$(kubectl get pods -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | grep -c n)" -eq "$1" ]; }
kubectl create priorityclass guest --value=10 > /dev/null
kubectl create priorityclass owner --value=1000 > /dev/null
for i in 0 1 2 3 4 5 6; do pod guest-$i guest ''; done
wait_for bound 7
kubectl get pods -o wide
for i in 0 1 2 3; do
  pod train-$i owner ', labels: {gang: train}, annotations: {apiary/gang-size: "4", apiary/required-level: block}'
done
wait_for bound 8
kubectl get pods -o wide
echo "the extender:"
grep -v '^begin' extender.log
[ "$(kubectl get pods | grep -c guest)" -eq 4 ] || { echo "not three guests were evicted"; exit 1; }
[ "$(kubectl get pods -l gang=train -o 'jsonpath={.items[*].spec.nodeName}' | tr ' ' '\n' | sort | tr '\n' ' ')" \
  = "n4 n5 n6 n7 " ] || { echo "the gang is not in one block"; exit 1; }
echo "three guests were evicted for the gang"
