package org.apache.spark.sql.execution.streaming.state.incremental.probe

import java.nio.file.{Files, Path, Paths}
import java.util.{Arrays, UUID}

import scala.collection.mutable
import scala.util.{Failure, Random, Success, Try}

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamilies
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{Codecs, FamilySchema}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * A random walk over two stores, Spark's RocksDB store and this one, through the interface that operators use: this one
 * has to answer as Spark's does, or to refuse what Spark's refuses, whatever the words are. Its end compares the change
 * feeds, if nothing took versions back meanwhile.
 *
 * Arguments: an empty directory, the seed, the number of batches, and the words `families` (many column families, of each
 * kind of key; else there is one of a random kind), `feed` (no version is taken back), `avro` (rows are encoded so) and
 * `numbers` (versions have no ids).
 */
object BesideRocksDB {
  private val columns = new StructType().add("group", StringType).add("number", LongType).add("share", DoubleType)
  private val timed = columns.add("_eventTime", LongType, nullable = false)
  private val small = new StructType()
    .add("byte", ByteType).add("short", ShortType).add("int", IntegerType).add("float", FloatType).add("flag",
      BooleanType)
  private val values = new StructType().add("text", StringType).add("count", LongType)

  /** A column family; `prefix` are the columns of its prefix scans, null if it has none. */
  private final case class Family(
      name: String, spec: KeyStateEncoderSpec, keys: StructType, prefix: StructType, isList: Boolean = false) {
    /** True if scans have an order that Spark promises. */
    def isOrdered: Boolean = spec match {
      case _: NoPrefixKeyStateEncoderSpec | _: PrefixKeyScanStateEncoderSpec => false
      case _ => true
    }
  }

  private val kinds = Seq(
    Family("plain", NoPrefixKeyStateEncoderSpec(columns), columns, null),
    Family("prefix", PrefixKeyScanStateEncoderSpec(columns, 1), columns, StructType(columns.take(1))),
    Family("long prefix", PrefixKeyScanStateEncoderSpec(columns, 2), columns, StructType(columns.take(2))),
    Family("range", RangeKeyScanStateEncoderSpec(columns, Seq(1, 2)), columns, StructType(columns.tail)),
    Family("share", RangeKeyScanStateEncoderSpec(columns, Seq(2)), columns, StructType(columns.takeRight(1))),
    Family("small", RangeKeyScanStateEncoderSpec(small, Seq(3, 0, 4)), small,
      StructType(Seq(small(3), small(0), small(4)))),
    Family("small prefix", PrefixKeyScanStateEncoderSpec(small, 3), small, StructType(small.take(3))),
    Family("time first", TimestampAsPrefixKeyStateEncoderSpec(timed), timed, null),
    Family("time last", TimestampAsPostfixKeyStateEncoderSpec(timed), timed, columns))

  private val projections = mutable.Map.empty[StructType, UnsafeProjection]

  private def row(schema: StructType, fields: Seq[Any]): UnsafeRow =
    projections.getOrElseUpdate(schema, UnsafeProjection.create(schema))(InternalRow.fromSeq(fields)).copy()

  private def shown(schema: StructType, row: UnsafeRow): String =
    if (row == null) "nothing" else row.toSeq(schema).mkString("(", ", ", ")")

  def main(arguments: Array[String]): Unit = {
    val context = new SparkContext(
      new SparkConf().setMaster("local[1]").setAppName("two stores").set("spark.ui.enabled", "false"))
    context.setLogLevel("OFF") // refusals are part of the walk
    val (seed, batches) = (arguments(1).toInt, arguments(2).toInt)
    val walk = new Walk(Paths.get(arguments(0)), new Random(seed), arguments.drop(3).toSet)
    val differences = walk.run(batches)
    context.stop()
    differences.take(20).foreach(println)
    println(s"seed $seed: ${differences.size} differences in ${walk.calls} calls of $batches batches")
    System.exit(if (differences.isEmpty) 0 else 1)
  }

  /** A scan that both stores have open, and the rows of each that were not compared. */
  private final class OpenScan(
      val family: Family,
      val name: String,
      val isOrdered: Boolean,
      val both: Seq[StateStoreIterator[UnsafeRowPair]]) {
    val rows: Seq[mutable.ArrayBuffer[String]] = both.map(_ => mutable.ArrayBuffer.empty[String])
  }

  private final class Walk(root: Path, random: Random, words: Set[String]) {
    private val hasFamilies = words("families")
    private val isFeed = words("feed")
    private val hasIds = !words("numbers")
    private val known = if (words("avro")) kinds.filter(_.keys != small) else kinds // Avro has no bytes
    private val single = known(random.nextInt(known.size))
    private val families =
      if (hasFamilies) known.flatMap(kind => Seq(kind, kind.copy(name = kind.name + " list", isList = true)))
      else Seq(single.copy(name = StateStore.DEFAULT_COL_FAMILY_NAME))
    private val roots = Seq("sparks", "own").map(name => Files.createDirectory(root.resolve(name)))
    private val knownKeys = mutable.Map.empty[Family, Vector[UnsafeRow]].withDefaultValue(Vector.empty)
    private val differences = mutable.ArrayBuffer.empty[String]
    private var providers = opened()
    private var stores = Seq.empty[StateStore]

    /** The versions of both stores, by their ids: version 0 is the first. */
    private var versions = Vector(Seq(Option.empty[String], None))
    private var hasRemovedRanges = false

    /** The families that operators have registered with the providers. Spark's store scans others, but decodes no row. */
    private var registered = Set.empty[Family]
    private val scans = mutable.ArrayBuffer.empty[OpenScan]

    /** The number of calls that were compared. */
    var calls = 0

    def run(batches: Int): Seq[String] = {
      for (_ <- 0 until batches) {
        if (random.nextInt(4) == 0) readOnly(random.nextInt(versions.size))
        batch()
        if (!isFeed && random.nextInt(6) == 0) providers.foreach(_.doMaintenance())
        // Without ids Spark's store takes snapshots of the versions that were taken back for those of the new ones.
        if (!isFeed && hasIds && random.nextInt(9) == 0 && versions.size > 4) {
          versions = versions.dropRight(1 + random.nextInt(3))
          registered = registered.empty
        }
        if (random.nextInt(9) == 0) {
          providers.foreach(_.close())
          providers = opened()
          registered = registered.empty
        }
      }
      if (isFeed) families.foreach(compareFeeds)
      providers.foreach(_.close())
      differences.toSeq
    }

    private def opened(): Seq[StateStoreProvider] =
      Seq(classOf[RocksDBStateStoreProvider], classOf[IncrementalStateStoreProvider]).zip(roots).map {
        case (provider, directory) =>
          val conf = new SQLConf
          Seq("providerClass" -> provider.getName, "checkpointFormatVersion" -> (if (hasIds) "2" else "1"),
            "encodingFormat" -> (if (words("avro")) "avro" else "unsaferow"),
            "rocksdb.changelogCheckpointing.enabled" -> "true", "rocksdb.mergeOperatorVersion" -> "1").foreach {
            case (name, value) => conf.setConfString(s"spark.sql.streaming.stateStore.$name", value)
          }
          val id = StateStoreProviderId(StateStoreId(s"$directory/state", 0, 0), UUID.randomUUID)
          val first = if (hasFamilies) known.head else single
          StateStoreProvider.createAndInit(id, first.keys, values, first.spec, hasFamilies, StateStoreConf(conf),
            new Configuration, useMultipleValuesPerKey = false,
            Option.when(words("avro"))(new TestStateSchemaProvider))
      }

    private def batch(): Unit = {
      val number = versions.size - 1
      if (random.nextInt(3) == 0) {
        readFrom(number)
        stores = providers.zip(stores).zip(versions.last).map { case ((provider, store), id) =>
          provider.upgradeReadStoreToWriteStore(store, number, id, forceSnapshotOnCommit = random.nextInt(20) == 0)
        }
      } else stores = providers.zip(versions.last).map { case (provider, id) => provider.getStore(number, id) }
      if (hasFamilies) families.filter(family => !registered(family) || random.nextInt(20) > 0).foreach(create)
      for (_ <- 0 until random.nextInt(60)) call(families(random.nextInt(families.size)))
      endScans()
      if (!isFeed && random.nextInt(8) == 0) {
        compare("abort")(_.abort())
        registered = registered.empty
        if (random.nextBoolean()) callsAfterTheEnd()
      } else {
        compare("commit")(_.commit())
        // Spark's store counts the keys of removed ranges in another way.
        if (!hasRemovedRanges) compare("number of keys")(_.metrics.numKeys)
        val ids = stores.map(store => Try(store.getStateStoreCheckpointInfo().stateStoreCkptId).toOption.flatten)
        if (random.nextInt(3) == 0) callsAfterTheEnd()
        versions :+= ids
      }
      leftScans()
    }

    private def create(family: Family): Unit = {
      compare(s"create ${family.name}")(
        _.createColFamilyIfAbsent(family.name, family.keys, values, family.spec, family.isList))
      registered += family
    }

    /** Opens a version in both stores to read it, and reads rows. */
    private def readFrom(number: Int): Unit = {
      stores = providers.zip(versions(number)).map { case (provider, id) =>
        provider.getReadStore(number, id).asInstanceOf[StateStore]
      }
      val names = stores.last.allColumnFamilyNames
      val present = if (hasFamilies) families.filter(family => registered(family) && names(family.name)) else families
      if (present.nonEmpty) for (_ <- 0 until random.nextInt(20)) readingCall(present(random.nextInt(present.size)))
    }

    private def readOnly(number: Int): Unit = {
      readFrom(number)
      endScans()
      if (random.nextBoolean()) compare("release")(_.release()) else compare("abort of a reader")(_.abort())
      leftScans()
    }

    /** Reads some open scans to their end, and closes others; the rest stay open beyond the end of the stores. */
    private def endScans(): Unit = scans.toSeq.foreach { scan =>
      random.nextInt(3) match {
        case 0 => while (scans.contains(scan)) step(scan)
        case 1 => close(scan)
        case _ =>
      }
    }

    /** Goes on with scans of stores that have ended. Only this store's: Spark's may read freed memory. */
    private def leftScans(): Unit = scans.toSeq.foreach { scan =>
      scan.both.head.close()
      Try(scan.both.last.take(3).foreach(_.toString))
      close(scan)
    }

    private def openScan(family: Family, key: UnsafeRow): Unit = {
      val (name, (from, to)) = (family.name, ends(family, key))
      val prefix = prefixOf(family, key)
      val (kind, isOrdered, opening) = random.nextInt(6) match {
        case 0 => ("iterator", family.isOrdered, (_: StateStore).iterator(name))
        case 1 => ("iterator of lists", family.isOrdered, (_: StateStore).iteratorWithMultiValues(name))
        case 2 => ("prefix", true, (_: StateStore).prefixScan(prefix, name))
        case 3 => ("prefix of lists", true, (_: StateStore).prefixScanWithMultiValues(prefix, name))
        case 4 => ("range", true, (_: StateStore).rangeScan(from, to, name))
        case 5 => ("range of lists", true, (_: StateStore).rangeScanWithMultiValues(from, to, name))
      }
      val both = stores.map(store => Try(opening(store)))
      if (both.forall(_.isSuccess)) scans += new OpenScan(family, s"$kind $name", isOrdered, both.map(_.get))
      else
        compare(s"open $kind $name")(store => both(stores.indexOf(store)).get.hasNext) // Spark's may refuse it so late
    }

    /** Reads some more rows of a scan. */
    private def step(scan: OpenScan): Unit = {
      val atMost = 1 + random.nextInt(8)
      // Nobody asks for a row that is not read at once: Spark's store decodes it into a row that other calls reuse.
      val before = scan.rows.head.size
      compare(s"go on with ${scan.name}") { store =>
        val i = stores.indexOf(store)
        val read = scan.both(i).take(atMost).map(entry(scan.family, _)).toVector
        scan.rows(i) ++= read
        if (scan.isOrdered) read.mkString(" ") else read.size
      }
      if (scan.rows.head.size < before + atMost) {
        compare(s"all of ${scan.name}")(store => scan.rows(stores.indexOf(store)).sorted.mkString(" "))
        close(scan)
      }
    }

    private def close(scan: OpenScan): Unit = {
      scans -= scan
      scan.both.foreach(_.close())
    }

    private def callsAfterTheEnd(): Unit = {
      val family = families.head
      compare("get after the end")(_.get(newKey(family), family.name))
      compare("put after the end")(_.put(newKey(family), newValue(), family.name))
      compare("commit after the end")(_.commit())
      compare("abort after the end")(_.abort())
      compare("has committed")(_.hasCommitted)
    }

    private def call(family: Family): Unit = {
      val (name, key) = (family.name, aKey(family))
      def list(): Array[UnsafeRow] = Array.fill(1 + random.nextInt(3))(newValue())
      random.nextInt(20) match {
        case 0 | 1 | 2 =>
          val value = newValue()
          compare(s"put $name")(_.put(key, value, name))
        case 3 => compare(s"remove $name")(_.remove(key, name))
        case 4 =>
          val value = newValue()
          compare(s"merge $name")(_.merge(key, value, name))
        case 5 =>
          val added = list()
          compare(s"merge list $name")(_.mergeList(key, added, name))
        case 6 =>
          val put = list()
          compare(s"put list $name")(_.putList(key, put, name))
        case 7 if hasFamilies && !isFeed && random.nextInt(4) == 0 => removeRange(family, key, aKey(family))
        case 8 => rareCall(family, key)
        case _ => readingCall(family)
      }
    }

    private def readingCall(family: Family): Unit = {
      val (name, key) = (family.name, aKey(family))
      random.nextInt(14) match {
        case 0 => compare(s"get $name")(store => shown(values, store.get(key, name)))
        case 1 => compare(s"exists $name")(_.keyExists(key, name))
        case 2 =>
          val keys = Array.fill(3)(aKey(family))
          compare(s"multi-get $name")(_.multiGet(keys, name).map(shown(values, _)).toVector)
        case 3 => compare(s"values $name")(_.valuesIterator(key, name).map(shown(values, _)).toVector)
        case 4 => compare(s"iterator $name")(store => pairs(family, store.iterator(name), family.isOrdered))
        case 5 =>
          compare(s"iterator of lists $name")(store =>
            pairs(family, store.iteratorWithMultiValues(name), family.isOrdered))
        case 6 => compare(s"prefix $name")(store => pairs(family, store.prefixScan(prefixOf(family, key), name)))
        case 7 =>
          compare(s"prefix of lists $name")(store =>
            pairs(family, store.prefixScanWithMultiValues(prefixOf(family, key), name)))
        case 8 =>
          val (from, to) = ends(family, key)
          compare(s"range $name")(store => pairs(family, store.rangeScan(from, to, name)))
        case 9 =>
          val (from, to) = ends(family, key)
          compare(s"range of lists $name")(store => pairs(family, store.rangeScanWithMultiValues(from, to, name)))
        case 10 | 11 => openScan(family, key)
        case _ => if (scans.nonEmpty) step(scans(random.nextInt(scans.size)))
      }
    }

    private def rareCall(family: Family, key: UnsafeRow): Unit = random.nextInt(10) match {
      case 0 =>
        compare(s"remove family ${family.name}")(_.removeColFamilyIfExists(family.name))
        registered -= family
        if (random.nextBoolean()) create(family)
      case 1 => compare("get of an unknown family")(_.get(key, "unknown"))
      case 2 => compare("get of no key")(_.get(null, family.name))
      case 3 => compare("put of no value")(_.put(key, null, family.name))
      case 4 if hasFamilies => compare("families")(_.allColumnFamilyNames.toSeq.sorted)
      case 5 =>
        val name = Seq("", " a", "$a", "default")(random.nextInt(4))
        compare(s"create '$name'")(_.createColFamilyIfAbsent(name, family.keys, values, family.spec))
      case 6 => compare("checkpoint before the commit")(_.getStateStoreCheckpointInfo().batchVersion)
      case 7 => compare("put of no list")(_.putList(key, null, family.name))
      case 8 => compare("merge of no row")(_.mergeList(key, Array[UnsafeRow](null), family.name))
      case 9 =>
        val name = Seq("", "default", "$a", "unknown")(random.nextInt(4))
        compare(s"remove family '$name'")(_.removeColFamilyIfExists(name))
      case _ =>
    }

    /** Removes the keys between two, in the order of their bytes: Spark's store refuses others, and a single family. */
    private def removeRange(family: Family, key: UnsafeRow, other: UnsafeRow): Unit = {
      val codec = new Codecs("unsaferow", None, columnFamilies = true).make(
        family.name, ColumnFamilies.Default, FamilySchema(family.spec, values, family.isList))
      if (Arrays.compareUnsigned(codec.encodeKey(key).clone, codec.encodeKey(other)) <= 0) {
        hasRemovedRanges = true
        compare(s"remove range ${family.name}")(_.deleteRange(key, other, family.name))
      }
    }

    private def compareFeeds(family: Family): Unit = {
      val changes = providers.zip(versions.last).map { case (provider, id) =>
        Try {
          val feed = provider.asInstanceOf[SupportsFineGrainedReplay]
            .getStateStoreChangeDataReader(1, versions.size - 1, Option.when(hasFamilies)(family.name), id)
          feed.map { case (kind, key, value, batch) =>
            val shownValue = if (kind == RecordType.DELETE_RECORD) "" else shown(values, value)
            f"$batch%4d $kind ${shown(family.keys, key)} $shownValue"
          }.toVector.sorted
        }
      }
      (changes.head, changes.last) match {
        case (Success(sparks), Success(own)) if sparks != own =>
          differences += s"feed ${family.name}: Spark's alone ${sparks.diff(own).take(5)}, own alone ${own.diff(sparks).take(5)}"
        case (sparks, own) if sparks.isSuccess != own.isSuccess =>
          differences += s"feed ${family.name}: Spark's is $sparks, and the own one $own".take(600)
        case _ =>
      }
    }

    /** Makes a call of both stores, and notes answers that differ. */
    private def compare(what: String)(call: StateStore => Any): Unit = {
      calls += 1
      val answers = stores.map(store => Try(call(store)).map(String.valueOf(_)))
      val areEqual = (answers.head, answers.last) match {
        case (Success(sparks), Success(own)) => sparks == own
        case (Failure(_), Failure(_)) => true
        case _ => false
      }
      if (!areEqual) {
        differences += s"version ${versions.size - 1}, $what:\n  Spark's ${answers.head}\n  own     ${answers.last}".take(
          900)
      }
    }

    private def pairs(family: Family, scan: Iterator[UnsafeRowPair], inOrder: Boolean = true): String = {
      val all = scan.map(entry(family, _)).toVector
      (if (inOrder) all else all.sorted).mkString(" ")
    }

    private def entry(family: Family, pair: UnsafeRowPair): String =
      s"${shown(family.keys, pair.key)}=${shown(values, pair.value)}"

    private def prefixOf(family: Family, key: UnsafeRow): UnsafeRow =
      if (family.prefix == null) key
      else {
        val byName = family.keys.fieldNames.zip(key.toSeq(family.keys)).toMap
        row(family.prefix, family.prefix.fieldNames.toSeq.map(byName))
      }

    private def ends(family: Family, key: UnsafeRow): (Option[UnsafeRow], Option[UnsafeRow]) = {
      val other = aKey(family)
      (Option.when(random.nextInt(4) > 0)(key), Option.when(random.nextInt(4) > 0)(other))
    }

    /** A key that was used before, as a rule. */
    private def aKey(family: Family): UnsafeRow = {
      val known = knownKeys(family)
      if (known.nonEmpty && random.nextInt(3) > 0) known(random.nextInt(known.size))
      else {
        val key = newKey(family)
        knownKeys(family) = known :+ key
        key
      }
    }

    private def newKey(family: Family): UnsafeRow = if (family.keys == small) newSmallKey()
    else {
      val group = oneOf("", "a", "ab", "b", "üüü", "z" * 300)
      val number = oneOf(0L, 1L, -1L, Long.MinValue, Long.MaxValue, random.nextInt(5) - 2L)
      val share = oneOf(0.0, -0.0, 1.5, -1.5, Double.NaN, Double.NegativeInfinity, Double.PositiveInfinity)
      val fields = Seq(maybe(UTF8String.fromString(group)), maybe(number), maybe(share))
      row(family.keys, if (family.keys == timed) fields :+ (random.nextInt(6) * 1000L) else fields)
    }

    private def newSmallKey(): UnsafeRow = row(small,
      Seq(
        maybe(oneOf[Byte](0, -1, 1, Byte.MinValue, Byte.MaxValue)),
        maybe(oneOf[Short](0, -1, 255, Short.MinValue, Short.MaxValue)),
        maybe(oneOf(0, -1, 256, Int.MinValue, Int.MaxValue)),
        maybe(oneOf(0f, -0f, 1.5f, -1.5f, Float.NaN, Float.MinValue, Float.MinPositiveValue, Float.NegativeInfinity)),
        maybe(random.nextBoolean())))

    private def newValue(): UnsafeRow =
      row(values, Seq(maybe(UTF8String.fromString("v" * random.nextInt(40))), random.nextInt(200) - 100L))

    private def oneOf[T](choices: T*): T = choices(random.nextInt(choices.size))

    private def maybe(value: Any): Any = if (random.nextInt(8) == 0) null else value
  }
}
