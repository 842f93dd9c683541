#!/usr/bin/env bash
# Fetches the peers of `pharos bench peers` into a directory:  install.sh DIR [pulsar] [kafka] [nats] [mosquitto] [tools]
#
# tools: pulsar-perf and Kafka's performance tools, for workloads/peers/stock-tools.toml; only when named.
#
# Everything comes from package registries, as this machine's tools are set up to reach them: Pulsar and Kafka with Maven from the
# central repository, nats-server with Go through the module proxy, mosquitto from the distribution (Debian's package, unpacked and not
# installed). What is there already in the wanted version is left alone.
#
#   PULSAR_VERSION (4.2.4)  PULSAR_TOOLS_VERSION (4.0.8, the newest whose tools are in the repository)  KAFKA_VERSION (4.3.1)  NATS_VERSION (v2.15.2)
#   MAVEN_REPOSITORY        address of a mirror, where Maven's own is not to be used
#
# Needs: a Java runtime of version 17 or newer and Maven, Go.
set -euo pipefail

dir=${1:?"usage: install.sh DIR [pulsar] [kafka] [nats] [mosquitto] [tools]"}
shift
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
[ $# -gt 0 ] || set -- pulsar kafka nats mosquitto

# there PEER VERSION: whether it is installed.
there() { [ "$(cat "$dir/$1/version" 2> /dev/null)" = "$2" ] && echo "$2 is in $dir/$1"; }

# done_with PEER VERSION: the version file is written last, so that a half installation is none.
done_with() { echo "$2" > "$dir/$1/version"; echo "$2 is in $dir/$1 ($(du -sm "$dir/$1" | cut -f1) MB)"; }

# The repository that Maven uses by itself stands in the model that all of its projects inherit.
maven_repository() {
    if [ -n "${MAVEN_REPOSITORY:-}" ]; then echo "$MAVEN_REPOSITORY"; return; fi
    local home model
    home=$(mvn -v | sed -n 's/^Maven home: //p')
    model=$(find -L "$home/lib" -name 'maven-model-builder*.jar' | head -n 1)
    unzip -p "$model" org/apache/maven/model/pom-4.0.0.xml | grep -o '<url>[^<]*' | head -n 1 | cut -d '>' -f 2
}

# libraries PEER POM-BODY: resolves the dependencies of a project of that body into PEER/lib.
libraries() {
    local at=$dir/$1
    rm -rf "$at" && mkdir -p "$at/pom"
    printf '%s' "<project><modelVersion>4.0.0</modelVersion><groupId>peers</groupId><artifactId>$1</artifactId><version>1</version>" \
        "<packaging>pom</packaging>$2</project>" > "$at/pom/pom.xml"
    # Some libraries name repositories of their own, which may be gone: all of them are looked for in one.
    printf '%s' "<settings><mirrors><mirror><id>one</id><mirrorOf>*</mirrorOf><url>$(maven_repository)</url></mirror></mirrors></settings>" \
        > "$at/pom/settings.xml"
    mvn -q -B -s "$at/pom/settings.xml" -f "$at/pom/pom.xml" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$at/lib"
}

dependency() { printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>' "$@"; }

pulsar() {
    local version=${PULSAR_VERSION:-4.2.4}
    there pulsar "Apache Pulsar $version" && return
    # The distribution's parent pins the versions of everything below it.
    libraries pulsar "<dependencyManagement><dependencies><dependency><groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId>\
<version>$version</version><type>pom</type><scope>import</scope></dependency></dependencies></dependencyManagement>\
<dependencies>$(dependency org.apache.pulsar pulsar-broker "$version")</dependencies>"
    done_with pulsar "Apache Pulsar $version"
}

kafka() {
    local version=${KAFKA_VERSION:-4.3.1}
    there kafka "Apache Kafka $version" && return
    libraries kafka "<dependencies>$(dependency org.apache.kafka kafka_2.13 "$version")\
$(dependency org.apache.logging.log4j log4j-slf4j-impl 2.25.3)$(dependency org.apache.logging.log4j log4j-core 2.25.3)</dependencies>"
    done_with kafka "Apache Kafka $version"
}

nats() {
    local version=${NATS_VERSION:-v2.15.2}
    there nats "nats-server $version" && return
    rm -rf "$dir/nats" && mkdir -p "$dir/nats/bin"
    GOBIN=$dir/nats/bin go install "github.com/nats-io/nats-server/v2@$version"
    done_with nats "nats-server $version"
}

mosquitto() {
    local version
    version=$(apt-cache policy mosquitto | sed -n 's/^  Candidate: //p')
    there mosquitto "mosquitto $version" && return
    rm -rf "$dir/mosquitto" && mkdir -p "$dir/mosquitto/bin" "$dir/mosquitto/package"
    (cd "$dir/mosquitto/package" && apt-get -qq download mosquitto && dpkg-deb -x mosquitto_*.deb .)
    cp "$dir/mosquitto/package/usr/sbin/mosquitto" "$dir/mosquitto/bin/"
    local missing
    missing=$(ldd "$dir/mosquitto/bin/mosquitto" | grep "not found" || true)
    [ -z "$missing" ] || { echo "mosquitto needs libraries of this machine that are not there: $missing" >&2; return 1; }
    done_with mosquitto "mosquitto $version"
}

tools() {
    local version=${KAFKA_VERSION:-4.3.1}
    there kafka-tools "Kafka's tools $version" || {
        libraries kafka-tools "<dependencies>$(dependency org.apache.kafka kafka-tools "$version")\
$(dependency org.apache.logging.log4j log4j-slf4j-impl 2.25.3)$(dependency org.apache.logging.log4j log4j-core 2.25.3)</dependencies>"
        done_with kafka-tools "Kafka's tools $version"
    }
    version=${PULSAR_TOOLS_VERSION:-4.0.8}
    there pulsar-tools "pulsar-perf $version" && return
    # The tools alone lack libraries in the repository; the whole distribution has them.
    local at=$dir/pulsar-tools
    rm -rf "$at" && mkdir -p "$at/pom" "$at/lib"
    printf '%s' "<settings><mirrors><mirror><id>one</id><mirrorOf>*</mirrorOf><url>$(maven_repository)</url></mirror></mirrors></settings>" \
        > "$at/pom/settings.xml"
    mvn -q -B -s "$at/pom/settings.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get -Dtransitive=false \
        -Dartifact="org.apache.pulsar:pulsar-server-distribution:$version:tar.gz:bin"
    mvn -q -B -s "$at/pom/settings.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dmdep.useBaseVersion=true \
        -Dartifact="org.apache.pulsar:pulsar-server-distribution:$version:tar.gz:bin" -DoutputDirectory="$at"
    tar -xzf "$at"/pulsar-server-distribution-*.tar.gz -C "$at/lib" --strip-components=2 --wildcards '*/lib/*.jar'
    rm -f "$at"/pulsar-server-distribution-*.tar.gz
    done_with pulsar-tools "pulsar-perf $version"
}

for peer in "$@"; do
    case $peer in
        pulsar | kafka | nats | mosquitto | tools) "$peer" ;;
        *) echo "unknown peer $peer" >&2; exit 2 ;;
    esac
done
