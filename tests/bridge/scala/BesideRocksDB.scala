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
 * kind of key; else there is one of a random kind) and `feed` (no version is taken back).
 */
object BesideRocksDB {
  private val columns = new StructType().add("group", StringType).add("number", LongType).add("share", DoubleType)
  private val timed = columns.add("_eventTime", LongType, nullable = false)
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
    val walk =
      new Walk(Paths.get(arguments(0)), new Random(seed), arguments.contains("families"), arguments.contains("feed"))
    val differences = walk.run(batches)
    context.stop()
    differences.take(20).foreach(println)
    println(s"seed $seed: ${differences.size} differences in ${walk.calls} calls of $batches batches")
    System.exit(if (differences.isEmpty) 0 else 1)
  }

  private final class Walk(root: Path, random: Random, hasFamilies: Boolean, isFeed: Boolean) {
    private val single = kinds(random.nextInt(kinds.size))
    private val families =
      if (hasFamilies) kinds.flatMap(kind => Seq(kind, kind.copy(name = kind.name + " list", isList = true)))
      else Seq(single.copy(name = StateStore.DEFAULT_COL_FAMILY_NAME))
    private val roots = Seq("sparks", "own").map(name => Files.createDirectory(root.resolve(name)))
    private val knownKeys = mutable.Map.empty[Family, Vector[UnsafeRow]].withDefaultValue(Vector.empty)
    private val differences = mutable.ArrayBuffer.empty[String]
    private var providers = opened()
    private var stores = Seq.empty[StateStore]

    /** The versions of both stores, by their ids: version 0 is the first. */
    private var versions = Vector(Seq(Option.empty[String], None))
    private var hasRemovedRanges = false

    /** The number of calls that were compared. */
    var calls = 0

    def run(batches: Int): Seq[String] = {
      for (_ <- 0 until batches) {
        batch()
        if (!isFeed && random.nextInt(6) == 0) providers.foreach(_.doMaintenance())
        if (!isFeed && random.nextInt(9) == 0 && versions.size > 2) versions = versions.dropRight(1)
        if (random.nextInt(9) == 0) {
          providers.foreach(_.close())
          providers = opened()
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
          Seq("providerClass" -> provider.getName, "checkpointFormatVersion" -> "2",
            "rocksdb.changelogCheckpointing.enabled" -> "true", "rocksdb.mergeOperatorVersion" -> "1").foreach {
            case (name, value) => conf.setConfString(s"spark.sql.streaming.stateStore.$name", value)
          }
          val id = StateStoreProviderId(StateStoreId(s"$directory/state", 0, 0), UUID.randomUUID)
          val first = if (hasFamilies) kinds.head else single
          StateStoreProvider.createAndInit(id, first.keys, values, first.spec, hasFamilies, StateStoreConf(conf),
            new Configuration, useMultipleValuesPerKey = false, None)
      }

    private def batch(): Unit = {
      val number = versions.size - 1
      stores = providers.zip(versions.last).map { case (provider, id) => provider.getStore(number, id) }
      if (hasFamilies) families.filter(_ => random.nextInt(20) > 0).foreach { family =>
        compare(s"create ${family.name}")(
          _.createColFamilyIfAbsent(family.name, family.keys, values, family.spec, family.isList))
      }
      for (_ <- 0 until random.nextInt(60)) call(families(random.nextInt(families.size)))
      if (!isFeed && random.nextInt(8) == 0) {
        compare("abort")(_.abort())
        if (random.nextBoolean()) callsAfterTheEnd()
      } else {
        compare("commit")(_.commit())
        // Spark's store counts the keys of removed ranges in another way.
        if (!hasRemovedRanges) compare("number of keys")(_.metrics.numKeys)
        val ids = stores.map(store => Try(store.getStateStoreCheckpointInfo().stateStoreCkptId).toOption.flatten)
        if (random.nextInt(3) == 0) callsAfterTheEnd()
        versions :+= ids
      }
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
        case 4 => compare(s"get $name")(store => shown(values, store.get(key, name)))
        case 5 => compare(s"exists $name")(_.keyExists(key, name))
        case 6 =>
          val keys = Array.fill(3)(aKey(family))
          compare(s"multi-get $name")(_.multiGet(keys, name).map(shown(values, _)).toVector)
        case 7 =>
          val value = newValue()
          compare(s"merge $name")(_.merge(key, value, name))
        case 8 =>
          val added = list()
          compare(s"merge list $name")(_.mergeList(key, added, name))
        case 9 =>
          val put = list()
          compare(s"put list $name")(_.putList(key, put, name))
        case 10 => compare(s"values $name")(_.valuesIterator(key, name).map(shown(values, _)).toVector)
        case 11 => compare(s"iterator $name")(store => pairs(family, store.iterator(name), family.isOrdered))
        case 12 =>
          compare(s"iterator of lists $name")(store =>
            pairs(family, store.iteratorWithMultiValues(name), family.isOrdered))
        case 13 => compare(s"prefix $name")(store => pairs(family, store.prefixScan(prefixOf(family, key), name)))
        case 14 =>
          compare(s"prefix of lists $name")(store =>
            pairs(family, store.prefixScanWithMultiValues(prefixOf(family, key), name)))
        case 15 =>
          val (from, to) = ends(family, key)
          compare(s"range $name")(store => pairs(family, store.rangeScan(from, to, name)))
        case 16 =>
          val (from, to) = ends(family, key)
          compare(s"range of lists $name")(store => pairs(family, store.rangeScanWithMultiValues(from, to, name)))
        case 17 if hasFamilies && !isFeed && random.nextInt(4) == 0 => removeRange(family, key, aKey(family))
        case 18 => rareCall(family, key)
        case _ =>
      }
    }

    private def rareCall(family: Family, key: UnsafeRow): Unit = random.nextInt(10) match {
      case 0 => compare(s"remove family ${family.name}")(_.removeColFamilyIfExists(family.name))
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
      val all = scan.map(pair => s"${shown(family.keys, pair.key)}=${shown(values, pair.value)}").toVector
      (if (inOrder) all else all.sorted).mkString(" ")
    }

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

    private def newKey(family: Family): UnsafeRow = {
      val group = oneOf("", "a", "ab", "b", "üüü", "z" * 300)
      val number = oneOf(0L, 1L, -1L, Long.MinValue, Long.MaxValue, random.nextInt(5) - 2L)
      val share = oneOf(0.0, -0.0, 1.5, -1.5, Double.NaN, Double.NegativeInfinity, Double.PositiveInfinity)
      val fields = Seq(maybe(UTF8String.fromString(group)), maybe(number), maybe(share))
      row(family.keys, if (family.keys == timed) fields :+ (random.nextInt(6) * 1000L) else fields)
    }

    private def newValue(): UnsafeRow =
      row(values, Seq(maybe(UTF8String.fromString("v" * random.nextInt(40))), random.nextInt(200) - 100L))

    private def oneOf[T](choices: T*): T = choices(random.nextInt(choices.size))

    private def maybe(value: Any): Any = if (random.nextInt(8) == 0) null else value
  }
}
